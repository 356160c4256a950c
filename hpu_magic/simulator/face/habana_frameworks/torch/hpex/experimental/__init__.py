"""Extensions whose interface may change."""
