"""Pure functions on tensors, a slow loop beside each fast form: the loop is the definition."""
