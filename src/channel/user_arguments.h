#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "channel/training_job.h"

namespace millrace {

/// Returns true if a hyperparameter is for SageMaker's training toolkit, and not for the program.
bool IsForToolkit(std::string_view hyperparameter);

/// Returns the hyperparameters of a job as the words of a command line, as SageMaker's training toolkit makes them:
/// "--name" or "-n", in the order of their names, each with its value in Python's spelling. The job must have been
/// checked.
std::vector<std::string> UserArguments(const TrainingJob& job);

/// Returns the command with these words at its end, if the toolkit would give them to it. It does so if the command
/// runs a Python script or module, also below a launcher (torchrun, env, mpirun), or the file `program`. In the text of
/// `sh -c`, also below a launcher, the last command gets the words if no other one there could take them. All other
/// commands, and texts with several lines, a comment or a here-document, are returned unchanged.
std::vector<std::string> WithArguments(std::vector<std::string> command, const std::vector<std::string>& arguments,
                                       const std::string& program);

}  // namespace millrace
