"""The papers' figures, measured again: what each claims, what comes out here, and why where it differs."""
