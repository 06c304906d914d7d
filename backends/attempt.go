package backends

import (
	"context"
	"errors"
	"fmt"
)

// tryEra is converse as what is known of the backend's era asks for. A server behind a
// URL is first taken for one of the stateless era, unless it is known for another.
func (l *line) tryEra(ctx context.Context) error {
	if l.b.cfg.URL == "" {
		return l.talkOver(ctx, byPipe)
	}
	v, pinned := l.b.verdict()
	if v.era != ofSessions && !l.mirrors() {
		err := l.talkOver(ctx, byItself)
		switch {
		case pinned || l.hasRun() || ctx.Err() != nil:
			return err
		case isA[undecided](err):
			return l.tryAfter(ctx, v, err)
		case !isA[classic](err):
			return err
		}
		l.log.Debug("backend is of the session era", "err", err)
		l.b.judge(verdict{era: ofSessions})
		then := l.tryHTTP(ctx)
		if other, ok := errors.AsType[otherEra](then); ok {
			return other.error // it was asked a moment ago
		}
		return then
	}
	return l.tryHTTP(ctx)
}

// tryAfter begins with initialize after refusal, the undecided error of server/discover. A
// backend that was found to be stateless before, v, is asked server/discover once more first:
// it may only be restarting.
func (l *line) tryAfter(ctx context.Context, v verdict, refusal error) error {
	if v.era == stateless {
		l.b.judge(verdict{})
		return refusal
	}
	l.log.Debug("backend does not answer server/discover; trying initialize", "err", refusal)
	l.hasty = refusal
	l.b.judge(verdict{era: ofSessions})
	err := l.tryHTTP(ctx)
	if other, ok := errors.AsType[otherEra](err); ok {
		err = other.error // server/discover was sent a moment ago
	}
	return err
}

// tryHTTP is converse with a server of the session era behind a URL. One that has no
// streamable HTTP is tried over HTTP+SSE, and known for that until it fails so.
func (l *line) tryHTTP(ctx context.Context) error {
	by := byHTTP
	if l.b.speaksOlder() {
		by = bySSE
	}
	err := l.talkOver(ctx, by)
	if !l.b.fallsBack(err) {
		if by == bySSE && !l.hasRun() {
			l.b.speakOlder(false)
		}
		return err
	}
	l.log.Info("backend has no streamable HTTP; trying HTTP+SSE", "err", err)
	then := l.talkOver(ctx, bySSE)
	if l.hasRun() {
		return then
	}
	return fmt.Errorf("%w; nor does it speak HTTP+SSE: %w", err, then)
}

// mayBeLegacy reports whether initialize follows at once on a conversation that failed with err.
func (l *line) mayBeLegacy(err error) bool {
	v, _ := l.b.verdict()
	return isA[classic](err) || v.era == unknown && isA[undecided](err)
}
