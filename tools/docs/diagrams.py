def outdated() -> list[str]: return []
