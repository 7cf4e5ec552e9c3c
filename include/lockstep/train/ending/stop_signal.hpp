#pragma once

namespace lockstep::train {

/// From now on SIGTERM, SIGUSR1, SIGINT and SIGHUP ask for a checkpoint and an orderly end instead
/// of ending the process. Schedulers send one of them some time before they kill; a terminal sends
/// SIGINT on Ctrl-C, and SIGHUP when it is closed. The handler only sets a flag.
///
/// A second SIGINT or SIGHUP ends the process at once, if it comes at least half a second after the
/// first one of its kind: a closed terminal and `timeout` send theirs twice at the same moment.
/// Where the process was started to ignore SIGINT or SIGHUP (nohup), it still does.
/// `speaks`: at the first SIGINT a line on stderr says what happens next. One rank should.
void catch_stop_signals(bool speaks);

/// True once such a signal has arrived.
bool stop_requested();

}  // namespace lockstep::train
