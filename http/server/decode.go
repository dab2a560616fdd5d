package server

import (
	"errors"
	"mime"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/atelier-run/atelier/entity"
)

// maxBody bounds JSON bodies, in bytes, unless an operation sets another limit.
const maxBody = 1 << 20

// Nothing is the decoder of operations without input. It refuses a query. It does not read the body, because generic clients
// send empty objects.
func Nothing(c *Call) (None, error) {
	_, err := ParseQuery(c.Request.URL.RawQuery)
	return None{}, err
}

// Body decodes a body that is a JSON object. It refuses unknown and duplicate fields, and null where the type has none.
// Errors: invalid_request, payload_too_large, unsupported_media_type.
func Body[In any](c *Call) (In, error) { return BodyUpTo[In](c, maxBody) }

// BodyUpTo is Body for operations with larger bodies, of at most a number of bytes. It authorizes the caller before it reads a
// body larger than the bodies of other operations. Errors: the errors of Body, of Authorize and of ReadBody.
func BodyUpTo[In any](c *Call, most int64) (In, error) {
	var in In
	if _, err := ParseQuery(c.Request.URL.RawQuery); err != nil {
		return in, err
	}
	if err := CheckMediaType(c.Request.Header); err != nil {
		return in, err
	}
	size := c.Request.ContentLength
	if isLarge := size < 0 || size > maxBody; isLarge && most > maxBody && size <= most {
		if err := c.Authorize(); err != nil {
			return in, err
		}
	}
	text, err := c.ReadBody(most)
	if err != nil {
		return in, err
	}
	return in, decodeJSON(text, &in)
}

// CheckMediaType checks that a body is application/json in UTF-8 without a content encoding. Errors: unsupported_media_type.
func CheckMediaType(h http.Header) error {
	refused := entity.Errorf(entity.UnsupportedMediaType, "the body must be application/json")
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return refused
	}
	media, parameters, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || media != "application/json" || len(h["Content-Type"]) > 1 {
		return refused
	}
	if charset, ok := parameters["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return refused
	}
	return nil
}

// errNull refuses null for fields without null in their schema. Go would treat null like an absent field.
var errNull = errors.New("null")

var strict = json.JoinOptions(
	json.RejectUnknownMembers(true),
	json.WithUnmarshalers(json.UnmarshalFromFunc(func(d *jsontext.Decoder, to any) error {
		if _, nullable := to.(json.UnmarshalerFrom); !nullable && d.PeekKind() == 'n' {
			return errNull
		}
		return errors.ErrUnsupported
	})),
)

// Nullable is a field that may be null. IsSet reports whether the object has the field.
type Nullable[T any] struct {
	Value *T
	IsSet bool
}

// UnmarshalJSONFrom decodes a value or null.
func (n *Nullable[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	n.IsSet = true
	if d.PeekKind() == 'n' {
		return d.SkipValue()
	}
	n.Value = new(T)
	return json.UnmarshalDecode(d, n.Value)
}

// DecodeMessage decodes an object that is not the body of a request, as strictly as Body. Errors: invalid_request.
func DecodeMessage(text []byte, in any) error { return decodeJSON(text, in) }

// decodeJSON decodes an object strictly; its errors name the field. Errors: invalid_request.
func decodeJSON(text []byte, in any) error {
	err := json.Unmarshal(text, in, strict)
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, json.ErrUnknownName) && errors.As(err, &semantic):
		return Invalid("unknown field %q", field(semantic.JSONPointer))
	case errors.Is(err, jsontext.ErrDuplicateName) && errors.As(err, &syntactic):
		return Invalid("field %q occurs twice", field(syntactic.JSONPointer))
	case errors.As(err, &semantic) && semantic.JSONPointer != "":
		return Invalid("%s has the wrong type or is out of range", field(semantic.JSONPointer))
	case errors.As(err, &semantic):
		return Invalid("the body must be a JSON object")
	}
	return Invalid("the body is not valid JSON")
}

// field returns the name of the field at a position, bounded because the client chose it.
func field(position jsontext.Pointer) string { return clip(strings.TrimPrefix(string(position), "/")) }

// Checked returns a decoder that decodes a body and then validates it with check, which may normalize its fields.
func Checked[In any](check func(*In) error) func(*Call) (In, error) {
	return func(c *Call) (In, error) {
		in, err := Body[In](c)
		if err == nil {
			err = check(&in)
		}
		return in, err
	}
}
