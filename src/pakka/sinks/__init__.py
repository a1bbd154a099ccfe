"""One module per system. `memory` is the shortest true sink and the model for the others."""
