"""The admission webhook: AdmissionReview in, AdmissionResponse out."""
