package control

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"time"
)

func integer(minimum int64) *schema { return &schema{kind: integerKind, int32: true, min: &minimum} }

// defaulted is an integer that may also be null.
func defaulted(minimum int64) *schema {
	sc := integer(minimum)
	sc.nullable = true
	return sc
}

func arrayOf(items *schema) *schema { return &schema{kind: arrayKind, items: items} }

// with returns the fields of both.
func with(a, b map[string]*schema) map[string]*schema {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

func mapOf(values *schema) *schema { return &schema{kind: objectKind, values: values} }

var (
	text    = &schema{kind: stringKind}
	boolean = &schema{kind: booleanKind}

	egressFields = map[string]*schema{
		"allowOut": arrayOf(text),
		"denyOut":  arrayOf(text),
		"egressProxy": {kind: objectKind, nullable: true, required: []string{"address"}, fields: map[string]*schema{
			"address": text, "username": text, "password": text,
		}},
		"rules": mapOf(arrayOf(&schema{kind: objectKind, fields: map[string]*schema{
			"transform": {kind: objectKind, fields: map[string]*schema{"headers": mapOf(text)}},
		}})),
	}
	networkSchema = &schema{kind: objectKind, fields: with(egressFields, map[string]*schema{
		"allowPublicTraffic": boolean,
		"maskRequestHost":    text,
		"httpsPorts":         arrayOf(&schema{kind: integerKind}),
	})}
	networkUpdateSchema = &schema{
		kind: objectKind, name: "SandboxNetworkUpdateConfig",
		fields: with(egressFields, map[string]*schema{"allow_internet_access": boolean}),
	}

	createSchemaV1 = createSchema("NewSandbox", 0, map[string]*schema{"secure": boolean})
	createSchemaV2 = createSchema("NewSandboxV2", 1, nil)

	connectSchemaV1 = &schema{
		kind: objectKind, name: "ConnectSandbox", required: []string{"timeout"},
		fields: map[string]*schema{"timeout": integer(0), "memory": boolean},
	}
	connectSchemaV2 = &schema{
		kind: objectKind, name: "ConnectSandboxV2",
		fields: map[string]*schema{"timeout": defaulted(1), "memory": boolean},
	}
	resumeSchema = &schema{
		kind: objectKind, name: "ResumedSandbox",
		fields: map[string]*schema{"timeout": defaulted(0), "autoPause": boolean, "memory": boolean},
	}
	pauseSchema = &schema{
		kind: objectKind, name: "SandboxPauseRequest",
		fields: map[string]*schema{"memory": boolean},
	}
	timeoutSchema = &schema{
		kind: objectKind, name: "SandboxTimeoutRequest", required: []string{"timeout"},
		fields: map[string]*schema{"timeout": integer(0)},
	}
	refreshSchema = &schema{
		kind: objectKind, name: "SandboxRefreshRequest",
		fields: map[string]*schema{"duration": {kind: integerKind, min: new(int64(0)), max: new(int64(3600))}},
	}
	volumeSchema       = &schema{kind: objectKind, name: "NewVolume", required: []string{"name"}, fields: map[string]*schema{"name": text}}
	newSecretSchema    = secretSchema("NewSecret", "name", "value")
	updateSecretSchema = secretSchema("SecretUpdate", "value")
)

func createSchema(name string, minTimeout int64, more map[string]*schema) *schema {
	fields := map[string]*schema{
		"templateID":            text,
		"timeout":               defaulted(minTimeout),
		"autoPause":             boolean,
		"autoPauseMemory":       boolean,
		"autoResume":            {kind: objectKind, required: []string{"enabled"}, fields: map[string]*schema{"enabled": boolean}},
		"allow_internet_access": boolean,
		"network":               networkSchema,
		"metadata":              mapOf(text),
		"envVars":               mapOf(text),
		"mcp":                   {kind: objectKind, nullable: true},
		"iam": {kind: objectKind, fields: map[string]*schema{
			"tokens": mapOf(&schema{
				kind: objectKind, required: []string{"audience", "tokenType"},
				fields: map[string]*schema{"audience": text, "tokenType": text},
			}),
		}},
		"volumeMounts": arrayOf(&schema{
			kind: objectKind, required: []string{"name", "path"},
			fields: map[string]*schema{"name": text, "path": text},
		}),
	}
	maps.Copy(fields, more)
	return &schema{kind: objectKind, name: name, required: []string{"templateID"}, fields: fields}
}

// seconds is an integer that may be written as 60.0 or 6e1.
type seconds time.Duration

// UnmarshalJSON reads a number that the schema has let pass.
func (s *seconds) UnmarshalJSON(b []byte) error {
	var f float64
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	*s = seconds(time.Duration(f) * time.Second)
	return nil
}

// or returns the value, or d where there is none.
func (s *seconds) or(d time.Duration) time.Duration {
	if s == nil {
		return d
	}
	return time.Duration(*s)
}

type createBody struct {
	TemplateID          string            `json:"templateID"`
	Timeout             *seconds          `json:"timeout"`
	AutoPause           bool              `json:"autoPause"`
	AutoPauseMemory     *bool             `json:"autoPauseMemory"`
	AutoResume          enabledBody       `json:"autoResume"`
	Secure              bool              `json:"secure"`
	AllowInternetAccess *bool             `json:"allow_internet_access"`
	Network             *network          `json:"network"`
	Metadata            map[string]string `json:"metadata"`
	EnvVars             map[string]string `json:"envVars"`
	IAM                 struct {
		Tokens map[string]json.RawMessage `json:"tokens"`
	} `json:"iam"`
	VolumeMounts []volumeMount `json:"volumeMounts"`
}

type enabledBody struct {
	Enabled bool `json:"enabled"`
}

type resumeBody struct {
	Timeout   *seconds `json:"timeout"`
	AutoPause *bool    `json:"autoPause"`
	Memory    *bool    `json:"memory"`
}

type pauseBody struct {
	Memory *bool `json:"memory"`
}

type timeoutBody struct {
	Timeout  *seconds `json:"timeout"`
	Duration *seconds `json:"duration"`
}

// decode reads a body that the schema has let pass; nil leaves into as it is.
func decode(body []byte, into any) *Error {
	if body == nil {
		return nil
	}
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(into); err != nil {
		return fail(http.StatusBadRequest, "Error when parsing request: "+err.Error())
	}
	return nil
}
