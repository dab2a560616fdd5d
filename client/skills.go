package client

import "net/url"

// Skill is a folder with a SKILL.md, which a session reads when it needs the skill.
type Skill struct {
	Name string `json:"name"`
	// Path is the path of the SKILL.md on the drive, or builtin: and the name.
	Path        string `json:"path"`
	Description string `json:"description,omitempty"`
	// Scope is project or builtin.
	Scope string `json:"scope"`
}

// Skills returns the skills that a session finds in a working directory, nearest folder first; "" is the root of the drive.
func (c *Client) Skills(slug, cwd string) Collection[Skill] {
	query := url.Values{}
	if cwd != "" {
		query.Set("cwd", cwd)
	}
	return Collection[Skill]{c, workspacePath(slug, "/skills"), query}
}
