module csc

go 1.21

require github.com/rexray/gocsi v1.2.2
