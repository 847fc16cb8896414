#include "experiments/settings.hpp"
