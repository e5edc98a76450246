"""From messages to tokens: chat templates, tool calls, hints, and the budget of a prompt."""
