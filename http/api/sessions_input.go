package api

import (
	"crypto/sha256"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/http/server"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	sessionservice "github.com/atelier-run/atelier/service/session"
)

const (
	// maxInputBody bounds the body of a request that may have images, in bytes: images of MaxImagesBytes in base64, and the text.
	maxInputBody = 18 << 20
	// maxLabel bounds the name and the media type of an attachment, in characters.
	maxLabel = 255
	// maxFirstAudience bounds the members that a new session names.
	maxFirstAudience = 100
)

// imageRequest is an image in a request.
type imageRequest struct {
	MediaType string `json:"mediaType"`
	Data      []byte `json:"data"`
}

// attachmentRequest names a file of the drive.
type attachmentRequest struct {
	Path      string  `json:"path"`
	Name      string  `json:"name"`
	Size      *int64  `json:"size"`
	MediaType *string `json:"mediaType"`
}

// startRequest is the body of a request to start a session.
type startRequest struct {
	Prompt          string              `json:"prompt"`
	Tier            *string             `json:"tier"`
	Behavior        *string             `json:"behavior"`
	ClientRequestID *string             `json:"clientRequestId"`
	Images          []imageRequest      `json:"images"`
	Attachments     []attachmentRequest `json:"attachments"`
	Cwd             *string             `json:"cwd"`
	MemberUserIDs   *[]string           `json:"memberUserIds"`
	AgentID         *string             `json:"agentId"`
	Mode            *string             `json:"mode"`
}

// messageRequest is the body of a message.
type messageRequest struct {
	Text            string              `json:"text"`
	Tier            *string             `json:"tier"`
	Behavior        *string             `json:"behavior"`
	ClientRequestID *string             `json:"clientRequestId"`
	Images          []imageRequest      `json:"images"`
	Attachments     []attachmentRequest `json:"attachments"`
	SourceSessionID *string             `json:"sourceSessionId"`
}

// answerRequest is the body of an answer.
type answerRequest struct {
	Text            *string `json:"text"`
	OptionID        *string `json:"optionId"`
	ClientRequestID *string `json:"clientRequestId"`
	SourceSessionID *string `json:"sourceSessionId"`
}

// noteRequest is the body of a note.
type noteRequest struct {
	Text            string  `json:"text"`
	ClientRequestID *string `json:"clientRequestId"`
	SourceSessionID *string `json:"sourceSessionId"`
}

// sessionInput is a validated input of a session, and the settings of a session that it starts.
type sessionInput struct {
	input *sessionv1.Input
	// images are the contents of the images of input, by their SHA-256.
	images map[string][]byte

	// cwd, mode and agentID are empty if the request does not set them; hasCwd and isSpecific report whether it sets cwd and
	// memberUserIds.
	cwd        string
	hasCwd     bool
	mode       sessionv1.Mode
	agentID    string
	members    []string
	isSpecific bool
}

// content returns the input as the operations of package service/session take it.
func (in *sessionInput) content() sessionservice.Input {
	return sessionservice.Input{Input: in.input, Images: in.images}
}

// start returns a request to start a session. Without memberUserIds, its audience is the workspace.
func (in *sessionInput) start(parentID string) sessionservice.Start {
	start := sessionservice.Start{
		Input: in.content(), ParentID: parentID, AgentID: in.agentID, Mode: in.mode,
		Audience: &sessionv1.Audience{Specific: in.isSpecific, UserIds: in.members},
	}
	if in.hasCwd {
		start.Cwd = &in.cwd
	}
	return start
}

// requestDigest has the values that the digest of a request is computed from. A request with the id of an earlier request and with a
// different value is another request, and is refused.
type requestDigest struct {
	Sender      string
	Target      string
	Kind        string
	Text        string
	OptionID    string
	Tier        string
	Behavior    string
	Source      string
	Images      []string
	Attachments []attachmentView
	HasCwd      bool
	Cwd         string
	Mode        string
	AgentID     string
	IsSpecific  bool
	Members     []string
}

// setDigest sets the digest of the request. target is the parent of a session that the input starts, or the session or owner that the
// input is sent to.
func (in *sessionInput) setDigest(c *server.Call, target string) error {
	sender := session.SenderOf(c.Caller.Principal)
	d := requestDigest{
		Sender: sender.GetKind().String() + " " + sender.GetId(), Target: target, Kind: inputKindNames[in.input.GetKind()], Text: in.input.GetText(), OptionID: in.input.GetOptionId(),
		Tier: tierNames[in.input.GetTier()], Behavior: behaviorNames[in.input.GetBehavior()], Source: in.input.GetSourceSessionId(),
		HasCwd: in.hasCwd, Cwd: in.cwd, Mode: modeNames[in.mode], AgentID: in.agentID, IsSpecific: in.isSpecific, Members: in.members,
	}
	for _, i := range in.input.GetImages() {
		d.Images = append(d.Images, fmt.Sprintf("%s %x", i.GetMediaType(), i.GetSha256()))
	}
	for _, a := range in.input.GetAttachments() {
		d.Attachments = append(d.Attachments, attachmentView{a.GetPath(), a.GetName(), a.GetSize(), a.GetMediaType()})
	}
	text, err := json.Marshal(d)
	sum := sha256.Sum256(text)
	in.input.Digest = sum[:]
	return err
}

// decodeStart decodes the body of a request to start a session.
func (s sessions) decodeStart(c *server.Call) (*sessionInput, error) {
	body, err := server.BodyUpTo[startRequest](c, maxInputBody)
	if err != nil {
		return nil, err
	}
	in := &sessionInput{input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_PROMPT}}
	if err := in.setContent("prompt", body.Prompt, body.Tier, body.Behavior, body.Images, body.Attachments); err != nil {
		return nil, err
	}
	if err := in.setRequest(body.ClientRequestID, nil); err != nil {
		return nil, err
	}
	if body.Mode != nil {
		var ok bool
		if in.mode, ok = ParseName(modeNames, *body.Mode); !ok {
			return nil, server.Invalid("mode must be one of auto, confirm")
		}
	}
	if body.AgentID != nil {
		if in.agentID = *body.AgentID; !entity.IsID(in.agentID) {
			return nil, sessionservice.ErrNoAgent
		}
	}
	if body.Cwd != nil {
		in.cwd, in.hasCwd = *body.Cwd, true
	}
	if body.MemberUserIDs != nil {
		in.members, in.isSpecific = *body.MemberUserIDs, true
		if err := checkMembers("memberUserIds", in.members, maxFirstAudience); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// decodeMessage decodes the body of a message.
func (s sessions) decodeMessage(c *server.Call) (*sessionInput, error) {
	body, err := server.BodyUpTo[messageRequest](c, maxInputBody)
	if err != nil {
		return nil, err
	}
	in := &sessionInput{input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_MESSAGE}}
	if err := in.setContent("text", body.Text, body.Tier, body.Behavior, body.Images, body.Attachments); err != nil {
		return nil, err
	}
	return in, in.setRequest(body.ClientRequestID, body.SourceSessionID)
}

// decodeAnswer decodes the body of an answer, which has either a text or the id of an option.
func (s sessions) decodeAnswer(c *server.Call) (*sessionInput, error) {
	body, err := server.Body[answerRequest](c)
	if err != nil {
		return nil, err
	}
	in := &sessionInput{input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_ANSWER}}
	switch {
	case (body.Text == nil) == (body.OptionID == nil):
		return nil, server.Invalid("an answer has either text or optionId")
	case body.Text != nil:
		if err := in.setText("text", *body.Text); err != nil {
			return nil, err
		}
	case *body.OptionID == "" || utf8.RuneCountInString(*body.OptionID) > maxLabel:
		return nil, server.Invalid("optionId must be the id of one of the question's options")
	default:
		in.input.OptionId = *body.OptionID
	}
	return in, in.setRequest(body.ClientRequestID, body.SourceSessionID)
}

// decodeNote decodes the body of a note.
func (s sessions) decodeNote(c *server.Call) (*sessionInput, error) {
	body, err := server.Body[noteRequest](c)
	if err != nil {
		return nil, err
	}
	in := &sessionInput{input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_NOTE}}
	if err := in.setText("text", body.Text); err != nil {
		return nil, err
	}
	return in, in.setRequest(body.ClientRequestID, body.SourceSessionID)
}

// setContent sets the fields that prompts and messages have in common; field names the text in errors.
func (in *sessionInput) setContent(field, text string, tier, behavior *string, images []imageRequest, attachments []attachmentRequest) error {
	if err := in.setText(field, text); err != nil {
		return err
	}
	in.input.Behavior = sessionv1.Behavior_BEHAVIOR_STEER
	if behavior != nil {
		var ok bool
		if in.input.Behavior, ok = ParseName(behaviorNames, *behavior); !ok {
			return server.Invalid("behavior must be one of steer, follow_up")
		}
	}
	if tier != nil {
		var ok bool
		if in.input.Tier, ok = ParseName(tierNames, *tier); !ok {
			return errTierName
		}
	}
	if err := in.setImages(images); err != nil {
		return err
	}
	return in.setAttachments(attachments)
}

func (in *sessionInput) setText(field, text string) error {
	if strings.TrimSpace(text) == "" || utf8.RuneCountInString(text) > session.MaxText {
		return server.Invalid("%s must have 1 to %d characters, and one that is no space", field, session.MaxText)
	}
	in.input.Text = text
	return nil
}

// requestIDs matches UUIDs (RFC 9562, section 4).
var requestIDs = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// setRequest sets the id of the request, in lower case, and the session that the input comes from.
func (in *sessionInput) setRequest(requestID, source *string) error {
	if requestID != nil {
		if in.input.ClientRequestId = strings.ToLower(*requestID); !requestIDs.MatchString(in.input.ClientRequestId) {
			return server.Invalid("clientRequestId must be a UUID")
		}
	}
	if source != nil {
		if in.input.SourceSessionId = *source; !session.IsID(*source) {
			return sessionservice.ErrNoSource
		}
	}
	return nil
}

var imageTypes = map[string]bool{"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true}

// setImages checks the images of a request by their content.
func (in *sessionInput) setImages(images []imageRequest) error {
	if len(images) > session.MaxImages {
		return server.Invalid("images must have at most %d items", session.MaxImages)
	}
	total := 0
	for i, image := range images {
		total += len(image.Data)
		switch {
		case !imageTypes[image.MediaType]:
			return server.Invalid("images/%d/mediaType must be one of image/png, image/jpeg, image/gif, image/webp", i)
		case len(image.Data) < 1 || len(image.Data) > session.MaxImageBytes:
			return server.Invalid("images/%d/data must have 1 to %d bytes", i, session.MaxImageBytes)
		case total > session.MaxImagesBytes:
			return server.Invalid("images must have at most %d bytes in all", session.MaxImagesBytes)
		case http.DetectContentType(image.Data) != image.MediaType:
			return server.Invalid("images/%d/data is not %s", i, image.MediaType)
		}
		sum := sha256.Sum256(image.Data)
		in.input.Images = append(in.input.GetImages(), &sessionv1.Image{MediaType: image.MediaType, Sha256: sum[:], Size: int64(len(image.Data))})
		if in.images == nil {
			in.images = map[string][]byte{}
		}
		in.images[string(sum[:])] = image.Data
	}
	return nil
}

func (in *sessionInput) setAttachments(attachments []attachmentRequest) error {
	if len(attachments) > session.MaxAttachments {
		return server.Invalid("attachments must have at most %d items", session.MaxAttachments)
	}
	for i, a := range attachments {
		mediaType := ""
		if a.MediaType != nil {
			mediaType = *a.MediaType
			if !isMediaType(mediaType) {
				return server.Invalid("attachments/%d/mediaType must be a media type", i)
			}
		}
		field := fmt.Sprintf("attachments/%d/path", i)
		switch err := server.CheckPath(field, a.Path); {
		case err != nil:
			return err
		case !isLabel(a.Name):
			return server.Invalid("attachments/%d/name must have 1 to %d characters and no control characters", i, maxLabel)
		case a.Size == nil || *a.Size < 0 || *a.Size > entity.MaxTime:
			return server.Invalid("attachments/%d/size must be an integer from 0 to %d", i, uint64(entity.MaxTime))
		}
		in.input.Attachments = append(in.input.GetAttachments(), &sessionv1.Attachment{
			Path: a.Path, Name: a.Name, Size: *a.Size, MediaType: mediaType,
		})
	}
	return nil
}

func isLabel(text string) bool {
	n := utf8.RuneCountInString(text)
	return n >= 1 && n <= maxLabel && !strings.ContainsFunc(text, entity.IsControl)
}

func isMediaType(text string) bool {
	kind, _, err := mime.ParseMediaType(text)
	return err == nil && isLabel(text) && strings.Contains(kind, "/")
}

// checkMembers checks the ids of members in a request; whether they are members is checked later.
func checkMembers(field string, ids []string, most int) error {
	if len(ids) > most {
		return server.Invalid("%s must have at most %d items", field, most)
	}
	seen := map[string]bool{}
	for _, id := range ids {
		switch {
		case !entity.IsID(id):
			return server.Invalid("%s must be ids of members of the workspace", field)
		case seen[id]:
			return server.Invalid("%s must not repeat an id", field)
		}
		seen[id] = true
	}
	return nil
}

var (
	errTierName = server.Invalid("tier must be one of frontier, balanced, openai-frontier, openai-max, anthropic-frontier, anthropic-max")
)
