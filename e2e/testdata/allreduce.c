// allreduce SECONDS: ranks add up numbers until rank 0 says that it is enough.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
	int rank, size, sum = 0, go = 1;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	double end = MPI_Wtime() + (argc > 1 ? atof(argv[1]) : 1);
	while (go) {
		MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		usleep(10000);
		go = MPI_Wtime() < end;
		MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
	}
	printf("rank %d of %d: %s\n", rank, size, sum == size * (size - 1) / 2 ? "right" : "wrong");
	MPI_Finalize();
	return 0;
}
