"""How nodes reach each other: in one process, by gRPC, by collectives; faults wrap any.

Who calls whom, when a node pulls a gradient over gRPC:

    asking node                                          answering node
    nodes ── pull ──▶ grpc/transport                     nodes ── serve ──▶ grpc/transport
                        │  on grpc/loop's thread                              │
                        ├─▶ collector   valid? enough?      outbox ◀─ answer ─┤
                        └─▶ grpc/client ──── grpc/wire over gRPC ───▶ grpc/server
                              │  fetch                               send │
                              └─▶ a carrier ══════ the vector ═════▶ its other end

    carriers    grpc/carriers      Chunks: on the gRPC call itself, the one that is always there
                same_host/carrier  SealedMemory: a descriptor over a unix socket, nothing copied
                datagrams/carrier  Datagrams: by UDP, where parts may be lost and are filled

`contract` says what a transport is, and which kinds of vectors there are; `documents` are
vectors, too: small texts of JSON, for all that nodes must say beside numbers. `connect`
puts a gRPC transport together with the carriers that its node needs. `grpc` knows
of no carrier but its own; `same_host` and `datagrams` are handed to it.
A node that nobody can call opens the links that it is asked over (`grpc/links`, `grpc/dialling`).
`simulated`, `collectives` and the wrappers `faults` and `datagrams/wrapper` fill
the same `collector`. `identity` and `certs` say who a node is, `addresses` where, and
`grpc/connections` who may hold connections to it.
"""
