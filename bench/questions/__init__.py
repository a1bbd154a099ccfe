"""One module a question: `answer(size)` measures it."""
