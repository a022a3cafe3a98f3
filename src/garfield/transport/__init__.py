"""How nodes reach each other: in one process, by gRPC, by collectives; faults wrap any."""
