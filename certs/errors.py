"""The one error that bad certificate material, names or folders raise."""


class CertificateError(ValueError):
    """Says in one line where the trouble is, what it is and the way out.

    `place` is a path, an option or a plain name of the input; `problem` and `remedy`
    are clauses without a closing period.
    """

    def __init__(self, *, place: object, problem: str, remedy: str) -> None:
        """Keep the three parts; `str()` joins them into one line."""
        super().__init__(f"{place}: {problem}; {remedy}")
        self.place = str(place)
        self.problem = problem
        self.remedy = remedy
