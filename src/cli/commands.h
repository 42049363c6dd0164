#pragma once

#include "cli/command_line.h"

/// The subcommands of `millrace`, one file each. An Add function adds its subcommand, and says what it does.

namespace millrace::cli {

using Action = Command::Action;

void AddCat(CLI::App& app, Action* run);
void AddCp(CLI::App& app, Action* run);
void AddDevstore(Command app);
void AddDoctor(Command app);
void AddFeed(Command app);
void AddIndex(Command app);
void AddInspect(Command app);
void AddLs(Command app);
void AddPack(Command app);
void AddRm(CLI::App& app, Action* run);
void AddSync(CLI::App& app, Action* run);
void AddSynth(Command app);

}  // namespace millrace::cli
