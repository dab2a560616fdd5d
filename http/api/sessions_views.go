package api

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/http/server"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/service"
)

// sessionSummary is a session as JSON, as lists have it.
type sessionSummary struct {
	ID                 string          `json:"id"`
	TurnStatus         string          `json:"turnStatus"`
	Bucket             string          `json:"bucket"`
	Title              string          `json:"title"`
	TitleOrigin        string          `json:"titleOrigin"`
	TitleStatus        string          `json:"titleStatus"`
	Cwd                string          `json:"cwd,omitzero"`
	Agent              *agentName      `json:"agent,omitzero"`
	CreatedBySessionID string          `json:"createdBySessionId,omitzero"`
	CreatedAt          int64           `json:"createdAt"`
	UpdatedAt          int64           `json:"updatedAt"`
	LastEventSeq       uint64          `json:"lastEventSeq"`
	Unread             bool            `json:"unread"`
	Audience           audienceView    `json:"audience"`
	Archive            archiveView     `json:"archive"`
	Permissions        permissionsView `json:"permissions"`
	Machine            *jobView        `json:"machine,omitzero"`
}

type agentName struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

type audienceView struct {
	Kind    string          `json:"kind"`
	Count   *int            `json:"count,omitzero"`
	Preview *[]audienceItem `json:"preview,omitzero"`
}

type audienceItem struct {
	MemberID string `json:"memberId"`
	UserID   string `json:"userId"`
	Name     string `json:"name"`
	Email    string `json:"email"`
	Role     string `json:"role"`
}

type archiveView struct {
	GlobalArchivedAt   *int64  `json:"globalArchivedAt"`
	PersonalArchivedAt *int64  `json:"personalArchivedAt"`
	Reason             *string `json:"reason"`
}

type permissionsView struct {
	Send            bool `json:"send"`
	Answer          bool `json:"answer"`
	Interrupt       bool `json:"interrupt"`
	Rename          bool `json:"rename"`
	ManageAudience  bool `json:"manageAudience"`
	PersonalArchive bool `json:"personalArchive"`
	GlobalArchive   bool `json:"globalArchive"`
	Delete          bool `json:"delete"`
}

type jobView struct {
	Activity   string        `json:"activity"`
	Step       string        `json:"step,omitzero"`
	Progress   *progressView `json:"progress,omitzero"`
	NextWakeAt int64         `json:"nextWakeAt,omitzero"`
	Outcome    string        `json:"outcome,omitzero"`
}

type progressView struct {
	Completed uint64 `json:"completed"`
	Total     uint64 `json:"total"`
}

// sessionDetail is a session as JSON, with the fields that its lists leave out.
type sessionDetail struct {
	sessionSummary
	Tier          *string       `json:"tier"`
	Mode          string        `json:"mode"`
	Ask           *askView      `json:"ask"`
	PendingInputs []pendingView `json:"pendingInputs"`
	Usage         usageView     `json:"usage"`
}

type askView struct {
	Seq     uint64       `json:"seq"`
	Text    string       `json:"text"`
	Options []optionView `json:"options"`
}

type optionView struct {
	ID    string `json:"id"`
	Label string `json:"label"`
}

type pendingView struct {
	Seq       uint64 `json:"seq"`
	Behavior  string `json:"behavior"`
	Tier      string `json:"tier"`
	CreatedAt int64  `json:"createdAt"`
}

type usageView struct {
	InputTokens  uint64 `json:"inputTokens"`
	OutputTokens uint64 `json:"outputTokens"`
}

// sessionChanged is the response to a request that changes a session.
type sessionChanged struct {
	Session sessionSummary `json:"session"`
}

// maxPreview bounds the members in the preview of an audience.
const maxPreview = 5

// sessionNames has the names of members and agents that sessions refer to.
type sessionNames struct {
	reader  string
	members map[string]*workspacev1.Membership
	agents  map[string]string
}

// lookUpNames looks up the members in the previews of sessions, and their agents.
func lookUpNames(c *server.Call, all ...*sessionv1.Session) (sessionNames, error) {
	n := sessionNames{c.Caller.Principal.GetUserId(), map[string]*workspacev1.Membership{}, map[string]string{}}
	var users, agents []string
	for _, s := range all {
		users = append(users, previewOf(s)...)
		if s.GetAgentId() != "" {
			agents = append(agents, s.GetAgentId())
		}
	}
	slices.Sort(agents)
	agents = slices.Compact(agents)
	names := make([]string, len(agents))
	err := service.ForEach(len(agents), func(i int) error {
		found, err := findAgent(c, agents[i])
		if entity.HasCode(err, entity.NotFound) {
			return nil // the agent was removed
		}
		names[i] = found.GetAgent().GetName()
		return err
	})
	for i, id := range agents {
		n.agents[id] = names[i]
	}
	if err != nil || len(users) == 0 {
		return n, err
	}
	slices.Sort(users)
	members, err := describeMembers(c, slices.Compact(users))
	for _, m := range members {
		n.members[m.GetUserId()] = m
	}
	return n, err
}

func previewOf(s *sessionv1.Session) []string {
	users := s.GetAudience().GetUserIds()
	return users[:min(len(users), maxPreview)]
}

// describeMembers returns the given users who are members of the workspace, as the platform. Errors: the errors of the workspace.
func describeMembers(c *server.Call, userIDs []string) ([]*workspacev1.Membership, error) {
	found, err := server.Ask[*workspacev1.Memberships](c, workspaceQuery(c, &workspacev1.DescribeMembers{UserIds: userIDs}))
	return found.GetMembers(), err
}

// findAgent returns the anchor of the agent with an id, as the platform. Errors: not_found.
func findAgent(c *server.Call, agentID string) (*workspacev1.Anchor, error) {
	return server.Ask[*workspacev1.Anchor](c, workspaceQuery(c, &workspacev1.DescribeAgent{AgentId: agentID}))
}

// workspaceQuery returns a query of the platform to the workspace in the path.
func workspaceQuery(c *server.Call, m proto.Message) entity.Command {
	return entity.Command{Kind: entity.KindWorkspace, Identity: c.Workspace.ID, Principal: entity.Platform(), Message: m}
}

// viewSummary returns a session as JSON, as its reader sees it.
func (n sessionNames) viewSummary(s *sessionv1.Session, p *sessionv1.Permissions) sessionSummary {
	return sessionSummary{
		ID: s.GetId(), TurnStatus: turnStatusNames[s.GetTurnStatus()], Bucket: session.BucketOf(s), Title: s.GetTitle(),
		TitleOrigin: titleOriginNames[s.GetTitleOrigin()], TitleStatus: titleStatusNames[s.GetTitleStatus()], Cwd: s.GetCwd(),
		Agent: n.viewAgentName(s.GetAgentId()), CreatedBySessionID: s.GetParentId(), CreatedAt: s.GetCreatedAt(), UpdatedAt: s.GetUpdatedAt(),
		LastEventSeq: s.GetLastEventSeq(), Unread: n.reader != "" && session.IsUnread(s, n.reader),
		Audience: n.viewAudience(s), Archive: n.viewArchive(s), Permissions: viewPermissions(p), Machine: viewJob(s),
	}
}

// viewAgentName returns an agent; nil if the session has none, or the agent was removed.
func (n sessionNames) viewAgentName(id string) *agentName {
	if n.agents[id] == "" {
		return nil
	}
	return &agentName{id, n.agents[id]}
}

func (n sessionNames) viewAudience(s *sessionv1.Session) audienceView {
	if !s.GetAudience().GetSpecific() {
		return audienceView{Kind: "workspace"}
	}
	count, preview := len(s.GetAudience().GetUserIds()), []audienceItem{}
	for _, id := range previewOf(s) {
		if m := n.members[id]; m != nil { // a removed member remains in the audience, without access
			preview = append(preview, audienceItem{id, id, m.GetName(), m.GetEmail(), roleNames[m.GetRole()]})
		}
	}
	return audienceView{"specific", &count, &preview}
}

func (n sessionNames) viewArchive(s *sessionv1.Session) archiveView {
	view, reason := archiveView{}, ""
	if at := s.GetPersonalArchivedAt()[n.reader]; at != 0 {
		view.PersonalArchivedAt, reason = &at, "personal"
	}
	if at := s.GetGlobalArchivedAt(); at != 0 {
		view.GlobalArchivedAt, reason = &at, "global"
	}
	if reason != "" {
		view.Reason = &reason
	}
	return view
}

func viewPermissions(p *sessionv1.Permissions) permissionsView {
	return permissionsView{
		Send: p.GetSend(), Answer: p.GetAnswer(), Interrupt: p.GetInterrupt(), Rename: p.GetRename(), ManageAudience: p.GetManageAudience(),
		PersonalArchive: p.GetPersonalArchive(), GlobalArchive: p.GetGlobalArchive(), Delete: p.GetDelete(),
	}
}

// viewJob returns the state of a job; nil if the session is none.
func viewJob(s *sessionv1.Session) *jobView {
	m := s.GetMachine()
	if m == nil {
		return nil
	}
	view := &jobView{
		Activity: activityNames[session.ActivityOf(s)], Step: m.GetStep(), NextWakeAt: s.GetWakeAt(), Outcome: outcomeNames[m.GetOutcome()],
	}
	if m.GetTotal() > 0 || m.GetCompleted() > 0 {
		view.Progress = &progressView{m.GetCompleted(), m.GetTotal()}
	}
	return view
}

// viewChanged returns the response to a request that has changed a session.
func viewChanged(c *server.Call, d *sessionv1.Description) (sessionChanged, error) {
	names, err := lookUpNames(c, d.GetSession())
	return sessionChanged{names.viewSummary(d.GetSession(), d.GetPermissions())}, err
}

// viewDetail returns a session with everything that its lists leave out.
func viewDetail(c *server.Call, d *sessionv1.Description) (sessionDetail, error) {
	s := d.GetSession()
	names, err := lookUpNames(c, s)
	view := sessionDetail{
		sessionSummary: names.viewSummary(s, d.GetPermissions()), Mode: modeNames[s.GetMode()],
		PendingInputs: make([]pendingView, len(s.GetPending())),
		Usage:         usageView{s.GetUsage().GetInputTokens(), s.GetUsage().GetOutputTokens()},
	}
	if tier := tierNames[s.GetTier()]; tier != "" {
		view.Tier = &tier
	}
	if ask := s.GetAsk(); ask != nil {
		view.Ask = &askView{ask.GetSeq(), ask.GetText(), viewOptions(ask.GetOptions())}
	}
	for i, p := range s.GetPending() {
		view.PendingInputs[i] = pendingView{p.GetSeq(), behaviorNames[p.GetBehavior()], tierNames[p.GetTier()], p.GetCreatedAt()}
	}
	return view, err
}

func viewOptions(options []*sessionv1.Option) []optionView {
	views := make([]optionView, len(options))
	for i, o := range options {
		views[i] = optionView{o.GetId(), o.GetLabel()}
	}
	return views
}
