package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
)

// endsAlready is what who asks a second time for the end of a command is told.
const endsAlready = `godwit: it is ending already, and takes away first what it has made; to end it at once, and leave that, press Ctrl-\ (SIGQUIT)`

// answerSecondSignal answers who asks again, by one of these signals, for the end of a command that takes its time to end, until
// stop. Only the first of them ends it: what it has made would stay else.
func answerSecondSignal(w io.Writer, ends []os.Signal) (stop func()) {
	asked, over, told := make(chan os.Signal, 4), make(chan struct{}), make(chan struct{})
	signal.Notify(asked, ends...)
	go func() {
		defer close(told)
		for n := 1; ; n++ {
			select {
			case <-asked:
				if n > 1 {
					fmt.Fprintln(w, endsAlready)
				}
			case <-over:
				return
			}
		}
	}()
	return func() {
		signal.Stop(asked)
		close(over)
		<-told
	}
}
