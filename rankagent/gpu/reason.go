//go:build cgo && linux

package gpu

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gswarm/gswarm/rankagent"
)

// reasonOf maps how a call ended to the reason code for what is missing.
func reasonOf(ret nvml.Return) rankagent.Reason {
	switch ret {
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_LIB_RM_VERSION_MISMATCH,
		nvml.ERROR_ARGUMENT_VERSION_MISMATCH, nvml.ERROR_DEPRECATED:
		return rankagent.NotSupported
	case nvml.ERROR_NO_PERMISSION:
		return rankagent.NoPermission
	case nvml.ERROR_NOT_FOUND, nvml.ERROR_GPU_NOT_FOUND:
		return rankagent.NotFound
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED:
		return rankagent.DeviceLost
	case nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_LIBRARY_NOT_FOUND:
		return rankagent.NoDriver
	case nvml.ERROR_TIMEOUT:
		return rankagent.SourceSlow
	}
	return rankagent.SourceError
}

// isLost says whether ret concerns the whole GPU rather than one call.
func isLost(ret nvml.Return) bool {
	return ret == nvml.ERROR_GPU_IS_LOST || ret == nvml.ERROR_RESET_REQUIRED
}

// text says how a call ended. go-nvml's own text points into the library's
// memory and asks the library again each time.
func text(ret nvml.Return) string {
	switch ret {
	case nvml.SUCCESS:
		return "success"
	case nvml.ERROR_UNINITIALIZED:
		return "NVML_ERROR_UNINITIALIZED"
	case nvml.ERROR_INVALID_ARGUMENT:
		return "NVML_ERROR_INVALID_ARGUMENT"
	case nvml.ERROR_NOT_SUPPORTED:
		return "NVML_ERROR_NOT_SUPPORTED"
	case nvml.ERROR_NO_PERMISSION:
		return "NVML_ERROR_NO_PERMISSION"
	case nvml.ERROR_NOT_FOUND:
		return "NVML_ERROR_NOT_FOUND"
	case nvml.ERROR_INSUFFICIENT_SIZE:
		return "NVML_ERROR_INSUFFICIENT_SIZE"
	case nvml.ERROR_INSUFFICIENT_POWER:
		return "NVML_ERROR_INSUFFICIENT_POWER"
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return "NVML_ERROR_DRIVER_NOT_LOADED"
	case nvml.ERROR_TIMEOUT:
		return "NVML_ERROR_TIMEOUT"
	case nvml.ERROR_IRQ_ISSUE:
		return "NVML_ERROR_IRQ_ISSUE"
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return "NVML_ERROR_LIBRARY_NOT_FOUND"
	case nvml.ERROR_FUNCTION_NOT_FOUND:
		return "NVML_ERROR_FUNCTION_NOT_FOUND"
	case nvml.ERROR_GPU_IS_LOST:
		return "NVML_ERROR_GPU_IS_LOST"
	case nvml.ERROR_RESET_REQUIRED:
		return "NVML_ERROR_RESET_REQUIRED"
	case nvml.ERROR_OPERATING_SYSTEM:
		return "NVML_ERROR_OPERATING_SYSTEM"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return "NVML_ERROR_LIB_RM_VERSION_MISMATCH"
	case nvml.ERROR_IN_USE:
		return "NVML_ERROR_IN_USE"
	case nvml.ERROR_MEMORY:
		return "NVML_ERROR_MEMORY"
	case nvml.ERROR_NO_DATA:
		return "NVML_ERROR_NO_DATA"
	case nvml.ERROR_INSUFFICIENT_RESOURCES:
		return "NVML_ERROR_INSUFFICIENT_RESOURCES"
	case nvml.ERROR_ARGUMENT_VERSION_MISMATCH:
		return "NVML_ERROR_ARGUMENT_VERSION_MISMATCH"
	case nvml.ERROR_DEPRECATED:
		return "NVML_ERROR_DEPRECATED"
	case nvml.ERROR_NOT_READY:
		return "NVML_ERROR_NOT_READY"
	case nvml.ERROR_GPU_NOT_FOUND:
		return "NVML_ERROR_GPU_NOT_FOUND"
	case nvml.ERROR_UNKNOWN:
		return "NVML_ERROR_UNKNOWN"
	}
	return "an NVML error that this version does not know"
}
