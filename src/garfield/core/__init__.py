"""What everything else stands on: errors, names, types. No torch, no grpc."""
