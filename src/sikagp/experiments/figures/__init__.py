"""The paper's figures that need no data but what they make themselves."""
