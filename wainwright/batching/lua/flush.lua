-- lock ('' = none asked), holder, fence, batch, outcome
-- → 1: over with this call; 0: it was over already, or is unknown; -1: the lock is not held by exactly this holder
if A[1] ~= '' and not holds(A[1], A[2], A[3]) then return -1 end
return flush(A[4], A[5]) and 1 or 0
