package box_test

import "errors"

const hasNamespaces = false

func addKey() error { return errors.ErrUnsupported }

func removed() error { return errors.ErrUnsupported }

func session() error { return errors.ErrUnsupported }

func inSession() error { return errors.ErrUnsupported }

func revoked() error { return errors.ErrUnsupported }
