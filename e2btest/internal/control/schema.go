package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// A schema is what a JSON value must be. Violations are worded as those of the
// OpenAPI validator that E2B's server uses.
type schema struct {
	kind     kind
	name     string             // of the schema of a whole body
	nullable bool               // also what the server fills in when it is null
	int32    bool               // an integer
	min, max *int64             // of an integer
	required []string           // of an object
	fields   map[string]*schema // of an object; others are ignored
	values   *schema            // of all other fields of an object
	items    *schema            // of an array
}

type kind string

const (
	anyKind     kind = ""
	objectKind  kind = "an object"
	arrayKind   kind = "an array"
	stringKind  kind = "a string"
	booleanKind kind = "a boolean"
	integerKind kind = "an integer"
)

// A violation is the first thing wrong with a value.
type violation struct {
	path   string
	reason string
}

// Error makes violation an error.
func (v *violation) Error() string {
	if v.path == "" {
		return v.reason
	}
	return fmt.Sprintf("Error at %q: %s", v.path, v.reason)
}

// check looks at a value as encoding/json decodes it with UseNumber.
func (sc *schema) check(value any) *violation {
	return sc.checkAt("", value)
}

func (sc *schema) checkAt(path string, value any) *violation {
	if sc.kind == anyKind || value == nil && sc.nullable {
		return nil
	}
	if value == nil {
		return &violation{path, "Value is not nullable"}
	}
	switch v := value.(type) {
	case map[string]any:
		if sc.kind == objectKind {
			return sc.checkObject(path, v)
		}
	case []any:
		if sc.kind == arrayKind {
			for i, item := range v {
				if bad := sc.items.checkAt(path+"/"+strconv.Itoa(i), item); bad != nil {
					return bad
				}
			}
			return nil
		}
	case string:
		if sc.kind == stringKind {
			return nil
		}
	case bool:
		if sc.kind == booleanKind {
			return nil
		}
	case json.Number:
		if sc.kind == integerKind {
			return sc.checkInteger(path, v)
		}
	}
	return &violation{path, "value must be " + string(sc.kind)}
}

func (sc *schema) checkObject(path string, object map[string]any) *violation {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		field := sc.fields[name]
		if field == nil {
			field = sc.values
		}
		if field == nil {
			continue
		}
		if bad := field.checkAt(path+"/"+name, object[name]); bad != nil {
			return bad
		}
	}
	for _, name := range sc.required {
		if _, ok := object[name]; !ok {
			return &violation{path + "/" + name, fmt.Sprintf("property %q is missing", name)}
		}
	}
	return nil
}

func (sc *schema) checkInteger(path string, number json.Number) *violation {
	// A float64 is what the real validator works with; it also keeps the work for
	// a number with a huge exponent small.
	f, err := number.Float64()
	if err != nil || !big.NewFloat(f).IsInt() {
		return &violation{path, "value must be an integer"}
	}
	switch {
	case sc.int32 && (f < math.MinInt32 || f > math.MaxInt32):
		return &violation{path, fmt.Sprintf("integer doesn't match the format \"int32\": value should be between %d and %d", math.MinInt32, math.MaxInt32)}
	case sc.min != nil && f < float64(*sc.min):
		return &violation{path, fmt.Sprintf("number must be at least %d", *sc.min)}
	case sc.max != nil && f > float64(*sc.max):
		return &violation{path, fmt.Sprintf("number must be at most %d", *sc.max)}
	}
	return nil
}

// validationError is a 400 of the validation that precedes the handlers.
func validationError(reason string) *Error {
	return fail(http.StatusBadRequest, "validation error: error in openapi3filter.RequestError: "+reason)
}

func bodyError(reason string) *Error {
	return validationError("request body has an error: " + reason)
}

func queryError(name, reason string) *Error {
	return validationError(fmt.Sprintf("parameter %q in query has an error: %s", name, reason))
}

const (
	maxBody     = 16 << 20         // the largest request body that the server reads
	maxBodyTime = 10 * time.Second // how long it reads one
)

// readBody reads and validates the body of a request. It returns nil for an
// absent body where one is optional.
func readBody(w http.ResponseWriter, r *http.Request, sc *schema, required bool) ([]byte, *Error) {
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(maxBodyTime)) // a writer without deadlines has its whole body
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil { // and net/http is not to wait for the rest either
		return nil, bodyError("reading failed: " + err.Error())
	}
	_ = conn.SetReadDeadline(time.Time{})
	if len(body) == 0 {
		if required {
			return nil, bodyError("value is required but missing")
		}
		return nil, nil
	}
	contentType := r.Header.Get("Content-Type")
	if mediaType, _, err := mime.ParseMediaType(contentType); err != nil || mediaType != "application/json" {
		return nil, bodyError(fmt.Sprintf("header Content-Type has unexpected value %q", contentType))
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, bodyError("failed to decode request body: " + err.Error())
	}
	if bad := sc.check(value); bad != nil {
		return nil, bodyError(fmt.Sprintf("doesn't match schema #/components/schemas/%s: %s", sc.name, bad))
	}
	return body, nil
}
