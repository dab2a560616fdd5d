package skills

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/skill"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Instructions makes the instructions of a session's agent from the texts on the drive: its AGENT.md and the skills. It is safe
// for concurrent use.
type Instructions struct {
	reader *Reader
	asker  entity.Asker
}

// NewInstructions returns Instructions that read the drives with a reader.
func NewInstructions(reader *Reader, asker entity.Asker) *Instructions {
	return &Instructions{reader, asker}
}

// maxListed bounds the list of skills in the text, in bytes; the nearest skills are listed.
const maxListed = 32 << 10

// Read returns one text for a model: the AGENT.md of an agent, if agentID is not empty, the list of the project skills of a
// working directory, and the built-in skills whole, because no program in a computer can read the built-in skills. It also records in
// the workspace the present content of the AGENT.md. An agent or a folder that does not exist any more, a malformed file, and a file or
// folder that the server may not read are no error: the text then has the other parts. Errors: the errors of the drive and of Asker that
// are no refusals, ctx's error.
func (i *Instructions) Read(ctx context.Context, workspaceID, agentID, cwd string) (string, error) {
	var text strings.Builder
	if agentID != "" {
		if err := i.writeAgent(ctx, &text, workspaceID, agentID); err != nil {
			return "", err
		}
	}
	all, err := i.reader.List(ctx, workspaceID, cwd)
	if entity.IsRefusal(err) { // the folder does not exist any more, or the server may not read it
		all, err = i.reader.List(ctx, workspaceID, "")
	}
	if err != nil {
		return "", err
	}
	writeSkills(&text, all)
	return text.String(), nil
}

// writeAgent writes the name, the description and the instructions of an agent.
func (i *Instructions) writeAgent(ctx context.Context, text *strings.Builder, workspaceID, agentID string) error {
	anchor, err := entity.ReplyAs[*workspacev1.Anchor](i.ask(ctx, workspaceID, &workspacev1.DescribeAgent{AgentId: agentID}))
	if entity.IsRefusal(err) {
		return nil // the agent was removed, and its sessions go on without it
	}
	if err != nil {
		return err
	}
	stored := anchor.GetAgent()
	agent := skill.Agent{Name: stored.GetName(), Description: stored.GetDescription(), Tier: stored.GetTier()}
	switch read, err := i.reader.Agent(ctx, workspaceID, anchor.GetPath()); {
	case err == nil:
		agent = read
	case !entity.IsRefusal(err):
		return err
	}
	if agent.Name != stored.GetName() || agent.Description != stored.GetDescription() || agent.Tier != stored.GetTier() {
		_, err := i.ask(ctx, workspaceID, &workspacev1.UpdateAgent{
			AnchorId: anchor.GetId(), Path: anchor.GetPath(), Name: agent.Name, Description: agent.Description, Tier: agent.Tier,
		})
		if err != nil && !entity.IsRefusal(err) {
			return err
		}
	}
	fmt.Fprintf(text, "You are the agent %q: %s\n\n", agent.Name, agent.Description)
	if agent.Instructions != "" {
		fmt.Fprintf(text, "%s\n\n", agent.Instructions)
	}
	return nil
}

// writeSkills writes the list of the project skills, and then the built-in ones.
func writeSkills(text *strings.Builder, all []skill.Skill) {
	start := text.Len()
	for n, s := range all {
		if s.Scope != skill.ScopeProject || text.Len()-start > maxListed {
			break
		}
		if n == 0 {
			text.WriteString("Skills of this workspace. Before you start work that a skill describes, read its file; paths are relative to the " +
				"workspace's drive. If two skills have the same name, use the first.\n\n")
		}
		fmt.Fprintf(text, "- %s (%s): %s\n", s.Name, s.Path, s.Description)
	}
	if text.Len() > start {
		text.WriteString("\n")
	}
	for _, s := range all {
		if content, ok := Builtin(s.Path); ok {
			_, body, _ := strings.Cut(strings.TrimPrefix(content, "---\n"), "\n---\n")
			fmt.Fprintf(text, "<skill name=%q>\n%s\n</skill>\n\n", s.Name, strings.TrimSpace(body))
		}
	}
}

func (i *Instructions) ask(ctx context.Context, workspaceID string, m workspacev1.Command) (proto.Message, error) {
	return entity.AskAsPlatform[proto.Message](ctx, i.asker, entity.KindWorkspace, workspaceID, m)
}
