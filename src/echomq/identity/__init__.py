"""Floor 0, identity: branded ids that sort by the instant of their mint (protocol §1)."""
