package http

import "net/http"

// answerMade is the adapter of operations that make something, 201, or find that it is there, 200.
func answerMade[In, Out any](decode func(*call) (In, error), run func(*call, In) (Out, bool, error)) handler {
	return func(c *call) error {
		in, err := decode(c)
		if err != nil {
			return c.withhold(err)
		}
		out, made, err := run(c, in)
		if err != nil {
			return err
		}
		status := http.StatusOK
		if made {
			status = http.StatusCreated
		}
		c.w.json(status, out)
		return nil
	}
}

// checked decodes a body, and holds it against what its type alone does not say.
func checked[In any](check func(*In) error) func(*call) (In, error) {
	return func(c *call) (In, error) {
		in, err := body[In](c)
		if err == nil {
			err = check(&in)
		}
		return in, err
	}
}
