"""Where load is read: one module per kind of source. Each answers "cannot tell" when it cannot be read, never zero."""
