"""The error about unusable certificates, names or folders."""


class CertificateError(ValueError):
    """Reports place, problem and remedy in one line.

    `place` is a path, an option or the name of an input; `problem` and `remedy` are clauses without a period.
    """

    def __init__(self, *, place: object, problem: str, remedy: str) -> None:
        """Keep the three parts; `str()` joins them into one line."""
        super().__init__(f"{place}: {problem}; {remedy}")
        self.place = str(place)
        self.problem = problem
        self.remedy = remedy
