-- `<kind>/<id>`, reason, what: sets something aside
bury(A[1], A[2], A[3])
return 1
