package http

// pageRoutes is the table of pages for people.
func (s *Server) pageRoutes() []route { return nil }
