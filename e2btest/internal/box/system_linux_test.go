package box_test

const hasNamespaces = true
