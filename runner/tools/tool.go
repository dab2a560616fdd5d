package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/slug"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/service"
)

// callers is the kind of callers that have a tool.
type callers int

const (
	everybody callers = iota
	onlySession
	onlyElsewhere
)

// tool is a tool for one kind of caller.
type tool struct {
	callers    callers
	definition *mcp.Tool
	// arguments validates the arguments.
	arguments *jsonschema.Resolved
	// inWorkspace reports that the arguments name the workspace.
	inWorkspace bool
	// isPersonal reports that the tool concerns no workspace.
	isPersonal bool
	run        func(ctx context.Context, c *call, arguments json.RawMessage) (any, error)
}

// call is one call of a tool.
type call struct {
	*Tools
	Caller
}

// define returns a tool. The schemas of its arguments and its result are derived from In and Out: the tag json has the name of a
// field, omitzero makes it optional, the tag jsonschema describes it, and the tags of bound limit it. It panics if a schema is
// impossible, which depends on the types alone.
func define[In, Out any](
	who callers, name, description string, hints mcp.ToolAnnotations, run func(context.Context, *call, In) (Out, error),
) *tool {
	in, err := jsonschema.For[In](nil)
	must(err)
	bound(in, reflect.TypeFor[In]())
	out, err := jsonschema.For[Out](nil)
	must(err)
	t := &tool{
		callers:    who,
		definition: &mcp.Tool{Name: name, Description: description, InputSchema: in, OutputSchema: out, Annotations: &hints},
		run: func(ctx context.Context, c *call, arguments json.RawMessage) (any, error) {
			var decoded In
			if err := json.Unmarshal(arguments, &decoded); err != nil {
				return nil, entity.Errorf(entity.InvalidRequest, "the arguments are not valid: %v", err)
			}
			return run(ctx, c, decoded)
		},
	}
	t.arguments, err = in.Resolve(nil)
	must(err)
	return t
}

// hints of the tools for clients, which may ask a person before they call a tool that changes something. The built-in agent asks, in the
// mode confirm, before it calls one that may destroy something.
var (
	reads   = mcp.ToolAnnotations{ReadOnlyHint: true}
	adds    = mcp.ToolAnnotations{DestructiveHint: new(bool)}
	changes = mcp.ToolAnnotations{IdempotentHint: true}
	// runs is for tools that run commands, which may do anything.
	runs = mcp.ToolAnnotations{}
)

// elsewhere returns the tool for callers without a session: its arguments have the workspace, unless it is a personal one.
func (t *tool) elsewhere() *tool {
	if t.isPersonal {
		return t
	}
	definition, schema := *t.definition, t.definition.InputSchema.(*jsonschema.Schema).CloneSchemas()
	least, most := 1, slug.MaxLength
	schema.Properties["workspace"] = &jsonschema.Schema{
		Type: "string", Description: "the slug of the workspace; see list_workspaces", MinLength: &least, MaxLength: &most,
	}
	schema.Required = append([]string{"workspace"}, schema.Required...)
	schema.PropertyOrder = append([]string{"workspace"}, schema.PropertyOrder...)
	definition.InputSchema = schema
	arguments, err := schema.Resolve(nil)
	must(err)
	return &tool{callers: t.callers, definition: &definition, arguments: arguments, inWorkspace: true, run: t.run}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// bound sets the limits that the tags of a struct's fields have: bounds:"1:200" are the least and greatest length of a text or a
// list, or value of a number; each:"1:200" are these bounds of each element of a list; enum:"a,b" has the values of a text;
// types:"integer,string" are the types of a field of any type.
func bound(s *jsonschema.Schema, of reflect.Type) {
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		property := s.Properties[name]
		if len(property.Types) == 2 && property.Types[0] == "null" { // a list or a pointer: null would be another way to omit it
			property.Type, property.Types = property.Types[1], nil
		}
		if text, ok := field.Tag.Lookup("bounds"); ok {
			limit(property, text)
		}
		if text, ok := field.Tag.Lookup("each"); ok {
			limit(property.Items, text)
		}
		if text, ok := field.Tag.Lookup("types"); ok {
			property.Types = strings.Split(text, ",")
		}
		if text, ok := field.Tag.Lookup("enum"); ok {
			for value := range strings.SplitSeq(text, ",") {
				property.Enum = append(property.Enum, value)
			}
		}
	}
}

// limit sets the least and greatest length or value, "1:200".
func limit(s *jsonschema.Schema, text string) {
	from, to, _ := strings.Cut(text, ":")
	least, err := strconv.Atoi(from)
	must(err)
	most, err := strconv.Atoi(to)
	must(err)
	low, high := float64(least), float64(most)
	switch {
	case s.Type == "string":
		s.MinLength, s.MaxLength = &least, &most
	case s.Type == "integer":
		s.Minimum, s.Maximum = &low, &high
	default:
		s.MinItems, s.MaxItems = &least, &most
	}
}

// serve runs a call and returns its result, which describes an error, if there is one.
func (t *tool) serve(ctx context.Context, c *call, arguments json.RawMessage) *mcp.CallToolResult {
	out, err := t.answer(ctx, c, arguments)
	if err != nil {
		return &mcp.CallToolResult{IsError: true, Content: text(c.publicText(t.definition.Name, err))}
	}
	encoded, err := json.Marshal(out)
	switch {
	case err != nil:
		return &mcp.CallToolResult{IsError: true, Content: text(c.publicText(t.definition.Name, err))}
	case len(encoded) > MaxResult:
		return &mcp.CallToolResult{IsError: true, Content: text("payload_too_large: the result is larger than 64 KiB; ask for less")}
	}
	return &mcp.CallToolResult{Content: text(string(encoded)), StructuredContent: json.RawMessage(encoded)}
}

func text(s string) []mcp.Content { return []mcp.Content{&mcp.TextContent{Text: s}} }

// answer validates the arguments, finds the workspace and runs the call.
func (t *tool) answer(ctx context.Context, c *call, arguments json.RawMessage) (any, error) {
	if len(arguments) == 0 || string(arguments) == "null" {
		arguments = json.RawMessage("{}")
	}
	var object map[string]any
	if err := json.Unmarshal(arguments, &object); err != nil || object == nil {
		return nil, entity.Errorf(entity.InvalidRequest, "the arguments must be a JSON object")
	}
	if err := t.arguments.Validate(object); err != nil {
		return nil, entity.Errorf(entity.InvalidRequest, "the arguments are not valid: %s", clip(err.Error(), maxProblem))
	}
	if t.inWorkspace {
		name, _ := object["workspace"].(string)
		var err error
		if c.WorkspaceID, err = c.findWorkspace(ctx, name); err != nil {
			return nil, err
		}
	}
	return t.run(ctx, c, arguments)
}

// maxProblem bounds the description of invalid arguments, in bytes.
const maxProblem = 500

// findWorkspace returns the id of the workspace with a slug. It authorizes nothing. Errors: not_found.
func (c *call) findWorkspace(ctx context.Context, name string) (string, error) {
	if slug.Check(name) != nil { // activate no entity for a name that no workspace can have
		return "", errNoWorkspace
	}
	found, err := ask[*slugv1.Slug](ctx, c, entity.Command{
		Kind: entity.KindSlug, Identity: name, Principal: entity.Platform(), Message: &slugv1.ResolveSlug{},
	})
	if err == nil && found.GetWorkspaceId() == "" {
		return "", errNoWorkspace
	}
	return found.GetWorkspaceId(), err
}

var errNoWorkspace = entity.Errorf(entity.NotFound, "there is no such workspace, or the credential does not reach it")

// authorize asks the workspace whether the caller has a capability. Errors: not_found, forbidden, workspace_suspended,
// workspace_closed.
func (c *call) authorize(ctx context.Context, capability string, changes bool) error {
	_, err := ask[*workspacev1.Authorized](ctx, c, entity.Command{
		Kind: entity.KindWorkspace, Identity: c.WorkspaceID,
		Message: &workspacev1.Authorize{Any: []string{capability}, Changes: changes},
	})
	return err
}

// ask sends a command to an entity and returns its reply. A command without a principal is sent as the caller.
func ask[Reply proto.Message](ctx context.Context, c *call, command entity.Command) (Reply, error) {
	return service.Ask[Reply](ctx, c.Asker, c.Caller.Caller, command)
}

// publicText returns the part of an error that the caller may see: its code, message and reason. Other errors are logged.
func (c *call) publicText(tool string, err error) string {
	var refused *entity.Error
	switch {
	case errors.As(err, &refused) && refused.Code != entity.Internal:
		switch problem := clip(refused.Error(), maxProblem); {
		case refused.RetryAfter > 0:
			return fmt.Sprintf("%s (try again in %s)", problem, refused.RetryAfter)
		case refused.Reason != "":
			return fmt.Sprintf("%s (reason: %s)", problem, refused.Reason)
		}
		return clip(refused.Error(), maxProblem)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return string(entity.Unavailable) + ": the server did not answer in time"
	}
	c.Log.Error("a tool failed", "request", c.RequestID, "tool", tool, "error", err)
	return string(entity.Internal) + ": the server failed; its log has the reason"
}

// clip returns the longest valid beginning of a text with at most a number of bytes.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
