"""Extensions whose interfaces may change."""
