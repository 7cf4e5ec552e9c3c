#pragma once

namespace lockstep::train {

/// From now on SIGTERM and SIGUSR1 ask for a checkpoint and an orderly end instead of ending the
/// process. Schedulers send one of them some time before they kill. The handler only sets a flag.
void catch_stop_signals();

/// True once such a signal has arrived.
bool stop_requested();

}  // namespace lockstep::train
