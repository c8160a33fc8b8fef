package box_test

const hasNamespaces = false
