package merge

import (
	"context"
	"sync"

	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// worker makes row groups. It is used by one goroutine at a time.
type worker struct {
	enc   *shard.Encoder
	raw   shard.RawGroup
	times *table.Batch // the columns of a row group that are corrected
	own   *table.Batch // and what comes of them
}

// job is a row group under way.
type job struct {
	group  shard.Group
	counts []int64 // rows by piece
	// finish is called when the row group was appended.
	finish func(*job)
	err    error
	done   chan struct{}
}

// line makes row groups, several at a time, and appends them to a file in the
// order in which they were put in. An error ends it.
type line struct {
	ctx    context.Context //nolint:containedctx // one merge's, from newLine to close
	cancel context.CancelFunc
	free   chan *worker
	queue  chan *job
	spare  sync.Pool
	busy   sync.WaitGroup
	ended  chan error
}

// newLine begins a line of n workers that appends to w. It has to be closed.
func newLine(ctx context.Context, w *shard.ParquetWriter, n int) (*line, error) {
	l := &line{
		free: make(chan *worker, n), queue: make(chan *job, n), ended: make(chan error, 1),
		spare: sync.Pool{New: func() any { return &job{} }},
	}
	for range n {
		enc, err := shard.NewEncoder()
		if err != nil {
			l.release()
			return nil, err
		}
		l.free <- &worker{enc: enc}
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	go func() { l.ended <- l.append(w) }()
	return l, nil
}

// put has fill make the next row group, and finish called when it was appended,
// which is in order, too. It waits until a worker is free.
func (l *line) put(fill func(*worker, *job) error, finish func(*job)) error {
	var wk *worker
	select {
	case wk = <-l.free:
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
	j, _ := l.spare.Get().(*job)
	j.finish, j.err, j.done = finish, nil, make(chan struct{})
	l.busy.Add(1)
	go func() {
		defer l.busy.Done()
		j.err = fill(wk, j)
		l.free <- wk
		close(j.done)
	}()
	select {
	case l.queue <- j:
		return nil
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
}

// append appends what the workers made.
func (l *line) append(w *shard.ParquetWriter) error {
	for j := range l.queue {
		<-j.done
		err := j.err
		if err == nil && j.group.Rows() > 0 {
			err = w.Append(&j.group)
		}
		if err != nil {
			l.cancel()
			return err
		}
		j.finish(j)
		l.spare.Put(j)
	}
	return nil
}

// close waits until all is appended, and returns the first row group's error.
func (l *line) close() error {
	close(l.queue)
	err := <-l.ended
	l.busy.Wait()
	if err == nil {
		err = l.ctx.Err()
	}
	l.cancel()
	l.release()
	return err
}

func (l *line) release() {
	close(l.free)
	for wk := range l.free {
		wk.enc.Release()
	}
}
