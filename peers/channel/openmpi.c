/* MPI: MPI_Send and MPI_Recv of bytes between the two ranks that mpirun started. A parameter of mpirun
 * determines how large messages are sent: by one process_vm_readv, or by copies into and out of shared
 * memory. */
#define _GNU_SOURCE
#include "two.h"

#include <limits.h>
#include <mpi.h>
#include <sys/stat.h>

static int other;

/* Orders and reports go through two FIFOs, because MPI_Recv would poll while a rank waits. */
static enum side split(int *in, int *out)
{
    char orders[PATH_MAX], reports[PATH_MAX];
    int rank, ranks;
    const char *scratch = worker_text("scratch", ".");
    snprintf(orders, sizeof orders, "%s/orders", scratch);
    snprintf(reports, sizeof reports, "%s/reports", scratch);
    MPI_Init(NULL, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2)
        worker_unfit("%d ranks: start it as mpirun -np 2", ranks);
    other = 1 - rank;
    if (!rank && (mkfifo(orders, 0600) || mkfifo(reports, 0600)))
        worker_unfit("mkfifo in %s: %s", scratch, strerror(errno));
    MPI_Barrier(MPI_COMM_WORLD);
    /* open(2) of a FIFO waits for the other end, so both ranks open them in the same order. */
    int first = open(orders, (rank ? O_RDONLY : O_WRONLY) | O_CLOEXEC);
    int second = open(reports, (rank ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
    if (first < 0 || second < 0)
        worker_unfit("opening the pipes in %s: %s", scratch, strerror(errno));
    *in = rank ? first : second;
    *out = rank ? second : first;
    if (!rank && (unlink(orders) || unlink(reports)))
        worker_unfit("unlink in %s: %s", scratch, strerror(errno));
    return rank ? RECEIVER : SENDER;
}

static void meet(enum side side)
{
    (void)side;
}

/* MPI counts are of type int, so larger messages are sent in pieces. */
static int piece(uint64_t left)
{
    return left < 1u << 30 ? (int)left : 1 << 30;
}

static void send_one(const char *bytes, uint64_t length)
{
    for (uint64_t at = 0; at < length; at += (uint64_t)piece(length - at))
        MPI_Send(bytes + at, piece(length - at), MPI_BYTE, other, 0, MPI_COMM_WORLD);
}

static void receive_one(char *into, uint64_t length)
{
    for (uint64_t at = 0; at < length; at += (uint64_t)piece(length - at))
        MPI_Recv(into + at, piece(length - at), MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void leave(void)
{
    MPI_Finalize();
}

int main(int argc, char **argv)
{
    struct way way = { .keys = "", .split = split, .meet = meet, .send = send_one, .receive = receive_one,
                       .leave = leave };
    return two_main(argc, argv, &way);
}
