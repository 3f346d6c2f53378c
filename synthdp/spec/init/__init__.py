"""`synthdp init`: a draft from the header of a table."""
