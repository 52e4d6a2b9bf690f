// Command redis serves the part of Redis that Argo CD uses, from memory, at the address it is given.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	server := miniredis.NewMiniRedis()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: redis ADDRESS:PORT")
		os.Exit(2)
	}
	if err := server.StartAddr(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer server.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
}
