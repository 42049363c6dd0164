#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "channel/training_job.h"

namespace millrace {

/// Whether a hyperparameter is for SageMaker's training toolkit, and is not told to the program.
bool IsForToolkit(std::string_view hyperparameter);

/// The hyperparameters of a job as the words of a command line, as SageMaker's training toolkit makes them: "--name" or
/// "-n", in the order of their names, each with its value in Python's spelling. The job must have been checked.
std::vector<std::string> UserArguments(const TrainingJob& job);

/// The command with these words at its end, if it is one to which the toolkit would give them: a Python script or
/// module, also below a launcher (torchrun, env, mpirun) and as the only command of `sh -c`, or one that runs the file
/// `program`. Else the command as it is.
std::vector<std::string> WithArguments(std::vector<std::string> command, const std::vector<std::string>& arguments,
                                       const std::string& program);

}  // namespace millrace
