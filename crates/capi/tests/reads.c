/*
 * A program that reads remote files by libgridlane. crates/cli/tests/it/c_abi.rs compiles it, as C99 and as C++, and runs it against
 * servers that are right, that hold answers back, and that die. SIGPIPE and all other signals are as a program has them by default.
 *
 *     reads all-over FILE URL            everything that can be read, compared with a copy of the file
 *     reads errors MISSING REFUSED       of a file that is not there, and of a server that is not
 *     reads held URL SILENT              a server that answers nothing about what is behind the first million bytes, and one that
 *                                        answers nothing at all
 *     reads dies FILE URL1 URL2          says "half" and goes on at a line of standard input, when URL1 is dead
 *     reads alone URL                    the same with nobody left
 */
#define _POSIX_C_SOURCE 200809L

#include "gridlane.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* Long enough for a machine that is busy with other things: what takes so long has gone wrong. */
#define LONG_MS 30000

#define CHECK(condition)                                                                \
    do {                                                                                \
        if (!(condition)) {                                                             \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);     \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

/* The call has failed with this kind of error, which is freed. */
#define CHECK_ERROR(wanted)                                                             \
    do {                                                                                \
        if (error == NULL || gridlane_error_kind(error) != (wanted)) {                  \
            fprintf(stderr, "%s:%d: error %d and not %d: %s\n", __FILE__, __LINE__,     \
                    gridlane_error_kind(error), (wanted), gridlane_error_text(error));  \
            exit(1);                                                                    \
        }                                                                               \
        gridlane_error_free(error);                                                     \
        error = NULL;                                                                   \
    } while (0)

#define CHECK_NO_ERROR()                                                                \
    do {                                                                                \
        if (error != NULL) {                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, gridlane_error_text(error)); \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

static gridlane_error *error = NULL;

static void *room(size_t bytes) {
    void *found = calloc(bytes > 0 ? bytes : 1, 1);
    CHECK(found != NULL);
    return found;
}

static gridlane_file *open_with(const char *first, const char *second, int64_t patience_ms) {
    const char *urls[2];
    gridlane_options options = GRIDLANE_OPTIONS_INIT;
    gridlane_file *file;
    urls[0] = first;
    urls[1] = second;
    options.flags = GRIDLANE_NO_CREDENTIALS;
    options.patience_ms = patience_ms;
    file = gridlane_open(urls, second == NULL ? 1 : 2, &options, &error);
    CHECK_NO_ERROR();
    CHECK(file != NULL);
    return file;
}

/* --- The file as it should be -------------------------------------------------------------------------------------------------- */

static unsigned char *right = NULL;
static size_t size = 0;

static void load(const char *path) {
    FILE *from = fopen(path, "rb");
    CHECK(from != NULL);
    CHECK(fseek(from, 0, SEEK_END) == 0);
    size = (size_t)ftell(from);
    rewind(from);
    right = (unsigned char *)room(size);
    CHECK(fread(right, 1, size, from) == size);
    CHECK(fclose(from) == 0);
}

/* Bytes of a range that are in the file. */
static size_t there(uint64_t offset, size_t length) {
    if (offset >= size)
        return 0;
    return length < size - (size_t)offset ? length : size - (size_t)offset;
}

static uint32_t lot = 1;

static uint32_t by_lot(uint32_t below) {
    lot = lot * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)lot * below) >> 32);
}

/* Ranges by lot, each with room for its bytes and no more; the last two at and behind the end of the file. */
static gridlane_range *scattered(size_t count, uint32_t most) {
    gridlane_range *ranges = (gridlane_range *)room(count * sizeof *ranges);
    size_t at;
    for (at = 0; at < count; at++) {
        ranges[at].offset = by_lot((uint32_t)size);
        ranges[at].length = 1 + by_lot(most);
    }
    ranges[count - 2].offset = size - 1;
    ranges[count - 1].offset = size + 5;
    for (at = 0; at < count; at++)
        ranges[at].buffer = room(ranges[at].length);
    return ranges;
}

static void check_range(const gridlane_range *range, size_t got) {
    CHECK(got == there(range->offset, range->length));
    CHECK(got == 0 || memcmp(range->buffer, right + range->offset, got) == 0);
}

static void free_ranges(gridlane_range *ranges, size_t count) {
    size_t at;
    for (at = 0; at < count; at++)
        free(ranges[at].buffer);
    free(ranges);
}

static void check_pread(gridlane_file *file, uint64_t offset, size_t length) {
    gridlane_range range;
    int64_t got;
    range.offset = offset;
    range.length = length;
    range.buffer = room(length);
    range.got = 0;
    got = gridlane_pread(file, range.buffer, length, offset, LONG_MS, &error);
    CHECK_NO_ERROR();
    CHECK(got >= 0);
    check_range(&range, (size_t)got);
    free(range.buffer);
}

static void check_readv(gridlane_file *file, size_t count, uint32_t most) {
    gridlane_range *ranges = scattered(count, most);
    size_t at;
    CHECK(gridlane_readv(file, ranges, count, LONG_MS, &error) == 0);
    CHECK_NO_ERROR();
    for (at = 0; at < count; at++) {
        CHECK(ranges[at].got >= 0);
        check_range(&ranges[at], (size_t)ranges[at].got);
    }
    free_ranges(ranges, count);
}

/* --- Calls in a queue ----------------------------------------------------------------------------------------------------------- */

typedef struct work {
    gridlane_range *ranges;
    size_t count;
    size_t told;
    char *seen;
    int is_over;
} work;

/* Several calls at once, told by a descriptor that poll(2) watches, with room for few completions at a time. */
static void check_queue(gridlane_file *file, size_t calls, size_t count) {
    gridlane_queue *queue = gridlane_queue_open(&error);
    work *works = (work *)room(calls * sizeof *works);
    size_t over = 0, at, range;
    int descriptor;
    CHECK_NO_ERROR();
    descriptor = gridlane_queue_descriptor(queue, &error);
    CHECK(descriptor >= 0);
    for (at = 0; at < calls; at++) {
        gridlane_call *call = NULL;
        gridlane_range *gone;
        works[at].ranges = scattered(count, 3000);
        works[at].count = count;
        works[at].seen = (char *)room(count);
        /* The array itself is not used any more when the call has begun. */
        gone = (gridlane_range *)room(count * sizeof *gone);
        memcpy(gone, works[at].ranges, count * sizeof *gone);
        CHECK(gridlane_submit(file, queue, gone, count, LONG_MS, &works[at], &call, &error) == 0);
        CHECK_NO_ERROR();
        CHECK(call != NULL);
        free(gone);
    }
    while (over < calls) {
        gridlane_completion done[7];
        struct pollfd wait;
        int64_t found, nth;
        wait.fd = descriptor;
        wait.events = POLLIN;
        CHECK(poll(&wait, 1, LONG_MS) == 1);
        found = gridlane_queue_take(queue, done, 7, 0, &error);
        CHECK_NO_ERROR();
        CHECK(found >= 0 && found <= 7);
        for (nth = 0; nth < found; nth++) {
            work *of = (work *)done[nth].tag;
            CHECK(!of->is_over);
            if (done[nth].index == SIZE_MAX) {
                CHECK(done[nth].error == NULL);
                CHECK(of->told == of->count);
                of->is_over = 1;
                over++;
                continue;
            }
            CHECK(done[nth].index < of->count && !of->seen[done[nth].index]);
            of->seen[done[nth].index] = 1;
            of->told++;
            check_range(&of->ranges[done[nth].index], done[nth].got);
        }
    }
    {
        gridlane_completion none;
        CHECK(gridlane_queue_take(queue, &none, 1, 0, &error) == 0);
        CHECK(gridlane_queue_take(queue, &none, 1, 5, &error) == 0);
        CHECK_NO_ERROR();
    }
    gridlane_queue_close(queue);
    for (at = 0; at < calls; at++) {
        for (range = 0; range < count; range++)
            CHECK(works[at].seen[range]);
        free_ranges(works[at].ranges, count);
        free(works[at].seen);
    }
    free(works);
}

/* The next thing that a queue tells. */
static gridlane_completion take_one(gridlane_queue *queue) {
    gridlane_completion done;
    int64_t found = gridlane_queue_take(queue, &done, 1, LONG_MS, &error);
    CHECK_NO_ERROR();
    CHECK(found == 1);
    return done;
}

/* It tells that a call is over, with this kind of error. */
static void check_over(gridlane_queue *queue, void *tag, int kind) {
    gridlane_completion done = take_one(queue);
    CHECK(done.tag == tag && done.index == SIZE_MAX);
    error = done.error;
    CHECK_ERROR(kind);
}

/* --- Cases ---------------------------------------------------------------------------------------------------------------------- */

typedef struct reader {
    gridlane_file *file;
    int nth;
} reader;

static void *read_much(void *argument) {
    reader *of = (reader *)argument;
    gridlane_error *mine = NULL;
    unsigned char buffer[5000];
    int at;
    for (at = 0; at < 200; at++) {
        uint64_t offset = ((uint64_t)at * 7919u * 1009u + (uint64_t)of->nth * 31u) % size;
        int64_t got = gridlane_pread(of->file, buffer, sizeof buffer, offset, LONG_MS, &mine);
        CHECK(mine == NULL);
        CHECK(got == (int64_t)there(offset, sizeof buffer));
        CHECK(memcmp(buffer, right + offset, (size_t)got) == 0);
    }
    return NULL;
}

static void check_threads(gridlane_file *file) {
    pthread_t threads[2];
    reader readers[2];
    int nth;
    for (nth = 0; nth < 2; nth++) {
        readers[nth].file = file;
        readers[nth].nth = nth;
        CHECK(pthread_create(&threads[nth], NULL, read_much, &readers[nth]) == 0);
    }
    for (nth = 0; nth < 2; nth++)
        CHECK(pthread_join(threads[nth], NULL) == 0);
}

/* Calls that one thread submits and partly cancels, while two others take what they tell. */
#define CROWD 120
#define CROWD_RANGES 8

typedef struct crowd {
    gridlane_queue *queue;
    gridlane_range *ranges[CROWD];
    int is_cancelled[CROWD];
    int is_over[CROWD];
    int left;
    int ready[2];
    pthread_mutex_t lock;
} crowd;

static void *take_crowd(void *argument) {
    crowd *all = (crowd *)argument;
    gridlane_error *mine = NULL;
    for (;;) {
        gridlane_completion done[5];
        int64_t found = gridlane_queue_take(all->queue, done, 5, GRIDLANE_FOREVER, &mine), nth;
        if (found < 0)
            break;
        CHECK(found > 0);
        for (nth = 0; nth < found; nth++) {
            size_t at = (size_t)((int *)done[nth].tag - all->is_over);
            CHECK(at < CROWD);
            if (done[nth].index != SIZE_MAX) {
                CHECK(done[nth].index < CROWD_RANGES && done[nth].error == NULL);
                check_range(&all->ranges[at][done[nth].index], done[nth].got);
                continue;
            }
            CHECK(pthread_mutex_lock(&all->lock) == 0);
            CHECK(!all->is_over[at]);
            all->is_over[at] = 1;
            if (done[nth].error != NULL)
                CHECK(all->is_cancelled[at] && gridlane_error_kind(done[nth].error) == GRIDLANE_INTERRUPTED);
            if (--all->left == 0)
                CHECK(write(all->ready[1], "r", 1) == 1);
            CHECK(pthread_mutex_unlock(&all->lock) == 0);
            gridlane_error_free(done[nth].error);
        }
    }
    CHECK(gridlane_error_kind(mine) == GRIDLANE_INTERRUPTED || gridlane_error_kind(mine) == GRIDLANE_USAGE);
    gridlane_error_free(mine);
    return NULL;
}

static void check_crowd(gridlane_file *file) {
    crowd *all = (crowd *)room(sizeof *all);
    pthread_t takers[2];
    char byte;
    size_t at;
    all->queue = gridlane_queue_open(&error);
    CHECK_NO_ERROR();
    all->left = CROWD;
    CHECK(pipe(all->ready) == 0 && pthread_mutex_init(&all->lock, NULL) == 0);
    for (at = 0; at < CROWD; at++) {
        all->ranges[at] = scattered(CROWD_RANGES, 2000);
        all->is_cancelled[at] = at % 3 == 0;
    }
    for (at = 0; at < 2; at++)
        CHECK(pthread_create(&takers[at], NULL, take_crowd, all) == 0);
    for (at = 0; at < CROWD; at++) {
        gridlane_call *call = NULL;
        CHECK(gridlane_submit(file, all->queue, all->ranges[at], CROWD_RANGES, LONG_MS, &all->is_over[at], &call, &error) == 0);
        if (all->is_cancelled[at])
            gridlane_cancel(call);
    }
    CHECK(read(all->ready[0], &byte, 1) == 1);
    gridlane_queue_close(all->queue);
    for (at = 0; at < 2; at++)
        CHECK(pthread_join(takers[at], NULL) == 0);
    for (at = 0; at < CROWD; at++) {
        CHECK(all->is_over[at]);
        free_ranges(all->ranges[at], CROWD_RANGES);
    }
    CHECK(close(all->ready[0]) == 0 && close(all->ready[1]) == 0);
    free(all);
}

/* Everything that a caller can get wrong without lying about memory. */
static void check_mistakes(gridlane_file *file, const char *url) {
    const char *urls[2];
    char buffer[16], not_utf8[] = "http://127.0.0.1/\xff";
    gridlane_options options = GRIDLANE_OPTIONS_INIT;
    gridlane_range range;
    gridlane_completion done;
    gridlane_queue *queue = gridlane_queue_open(NULL);
    uint64_t bytes = 0;
    CHECK(queue != NULL);
    memset(&range, 0, sizeof range);
    urls[0] = url;
    urls[1] = NULL;

    CHECK(gridlane_open(NULL, 1, NULL, &error) == NULL);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_open(urls, 0, NULL, &error) == NULL);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_open(urls, 2, NULL, &error) == NULL);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_open(urls, 2, NULL, NULL) == NULL);
    urls[0] = not_utf8;
    CHECK(gridlane_open(urls, 1, NULL, &error) == NULL);
    CHECK_ERROR(GRIDLANE_USAGE);
    urls[0] = url;
    options.policy = "quick";
    CHECK(gridlane_open(urls, 1, &options, &error) == NULL);
    CHECK_ERROR(GRIDLANE_USAGE);
    options.policy = NULL;
    options.size = 3;
    CHECK(gridlane_open(urls, 1, &options, &error) == NULL);
    CHECK_ERROR(GRIDLANE_USAGE);

    options.size = SIZE_MAX / 2;
    CHECK(gridlane_open(urls, 1, &options, &error) == NULL);
    CHECK_ERROR(GRIDLANE_USAGE);
    /* What an earlier call has left is not taken for bytes of this one. */
    range.got = 7;
    range.length = 5;
    CHECK(gridlane_readv(file, &range, 1, GRIDLANE_FOREVER, &error) == -1 && range.got == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    range.length = 0;

    CHECK(gridlane_size(NULL, &bytes, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_size(file, NULL, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_pread(NULL, buffer, 1, 0, GRIDLANE_FOREVER, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_pread(file, NULL, 1, 0, GRIDLANE_FOREVER, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_pread(file, NULL, 1, 0, GRIDLANE_FOREVER, NULL) == -1);
    CHECK(gridlane_pread(file, buffer, SIZE_MAX, 0, GRIDLANE_FOREVER, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_pread(file, buffer, 2, UINT64_MAX, GRIDLANE_FOREVER, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_pread(file, NULL, 0, 0, GRIDLANE_FOREVER, &error) == 0);
    CHECK_NO_ERROR();
    /* One kind of handle is not another, and no address is one. */
    CHECK(gridlane_pread((gridlane_file *)queue, buffer, 1, 0, GRIDLANE_FOREVER, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_pread((gridlane_file *)(void *)buffer, buffer, 1, 0, GRIDLANE_FOREVER, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);

    CHECK(gridlane_readv(file, NULL, 1, GRIDLANE_FOREVER, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_readv(file, NULL, 0, GRIDLANE_FOREVER, &error) == 0);
    CHECK_NO_ERROR();
    range.length = 1;
    CHECK(gridlane_readv(file, &range, 1, GRIDLANE_FOREVER, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_submit(file, NULL, &range, 1, GRIDLANE_FOREVER, NULL, NULL, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_submit(file, queue, &range, 1, GRIDLANE_FOREVER, NULL, NULL, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_submit(file, queue, NULL, 0, GRIDLANE_FOREVER, buffer, NULL, &error) == 0);
    done = take_one(queue);
    CHECK(done.tag == buffer && done.index == SIZE_MAX && done.error == NULL);
    CHECK(gridlane_queue_take(queue, NULL, 1, 0, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_queue_take(queue, &done, 0, 0, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_queue_take(NULL, &done, 1, 0, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_queue_descriptor(NULL, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_hint(file, 9, NULL, 0, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_hint(file, GRIDLANE_RANDOM, &range, 1, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_prefetch(NULL, &range, 1, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    CHECK(gridlane_explain(NULL, &error) == NULL);
    CHECK_ERROR(GRIDLANE_USAGE);

    gridlane_close(NULL);
    gridlane_cancel(NULL);
    gridlane_queue_close(NULL);
    gridlane_error_free(NULL);
    gridlane_text_free(NULL);
    CHECK(gridlane_error_kind(NULL) == 0 && gridlane_error_retryable(NULL) == 0);
    CHECK(gridlane_error_message(NULL)[0] == '\0' && gridlane_error_endpoint(NULL) == NULL);
    gridlane_queue_close(queue);
    gridlane_queue_close(queue);
    CHECK(gridlane_queue_take(queue, &done, 1, 0, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
}

static void all_over(const char *path, const char *url) {
    gridlane_file *file, *own;
    gridlane_range *soon;
    uint64_t bytes = 0;
    char *explained, byte = 0;
    int at;
    load(path);
    file = open_with(url, NULL, 0);
    CHECK(gridlane_size(file, &bytes, &error) == 0);
    CHECK(bytes == size);
    check_pread(file, 0, 1);
    check_pread(file, 1000001, 300000);
    check_pread(file, size - 10, 100);
    check_pread(file, size, 100);
    check_pread(file, UINT64_MAX - 100, 100);
    CHECK(gridlane_pread(file, &byte, 1, 3000000, INT64_MAX, &error) == 1);
    CHECK((unsigned char)byte == right[3000000]);
    for (at = 0; at < 20; at++)
        check_pread(file, by_lot((uint32_t)size), 1 + by_lot(4000));
    check_readv(file, 1000, 1500);
    check_queue(file, 1, 2000);
    check_queue(file, 20, 50);
    soon = scattered(100, 1000);
    CHECK(gridlane_prefetch(file, soon, 100, &error) == 0);
    CHECK(gridlane_hint(file, GRIDLANE_KEEP, soon, 1, &error) == 0);
    CHECK(gridlane_hint(file, GRIDLANE_RANDOM, NULL, 0, &error) == 0);
    check_threads(file);
    check_crowd(file);
    CHECK(gridlane_hint(file, GRIDLANE_EVERYTHING, NULL, 0, &error) == 0);
    free_ranges(soon, 100);
    check_readv(file, 300, 40000);
    explained = gridlane_explain(file, &error);
    CHECK_NO_ERROR();
    printf("%s\n", explained);
    gridlane_text_free(explained);
    /* A path of this machine is as good as a URL. */
    own = open_with(path, url, 0);
    check_readv(own, 100, 3000);
    gridlane_close(own);
    check_mistakes(file, url);
    gridlane_close(file);
    gridlane_close(file);
    CHECK(gridlane_size(file, &bytes, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    free(right);
}

static void errors(const char *missing, const char *refused) {
    const char *urls[1];
    urls[0] = missing;
    CHECK(gridlane_open(urls, 1, NULL, &error) == NULL);
    CHECK(strcmp(gridlane_error_name(error), "not_found") == 0);
    CHECK(gridlane_error_retryable(error) == 0);
    CHECK(gridlane_error_message(error)[0] != '\0');
    CHECK(strstr(gridlane_error_text(error), gridlane_error_message(error)) != NULL);
    CHECK(strstr(gridlane_error_endpoint(error), "missing") != NULL);
    CHECK_ERROR(GRIDLANE_NOT_FOUND);
    urls[0] = refused;
    CHECK(gridlane_open(urls, 1, NULL, &error) == NULL);
    CHECK(gridlane_error_retryable(error) == 1);
    CHECK_ERROR(GRIDLANE_NETWORK);
    urls[0] = "gopher://127.0.0.1/f";
    CHECK(gridlane_open(urls, 1, NULL, &error) == NULL);
    CHECK_ERROR(GRIDLANE_UNSUPPORTED);
}

static gridlane_file *held_file = NULL;

/* A call that is not answered; its tag is the address of held_file. */
static gridlane_call *begin(gridlane_file *file, gridlane_queue *queue, void *buffer, int64_t timeout_ms) {
    gridlane_range range;
    gridlane_call *call = NULL;
    range.offset = 10000000;
    range.length = 1000;
    range.buffer = buffer;
    range.got = 0;
    CHECK(gridlane_submit(file, queue, &range, 1, timeout_ms, &held_file, &call, &error) == 0);
    CHECK_NO_ERROR();
    return call;
}

static int says_begun[2];

static void *read_held(void *unused) {
    char buffer[1000];
    gridlane_error *mine = NULL;
    CHECK(write(says_begun[1], "b", 1) == 1);
    CHECK(gridlane_pread(held_file, buffer, sizeof buffer, 10000000, GRIDLANE_FOREVER, &mine) == -1);
    /* INTERRUPTED, or USAGE where the file was closed before it came so far. */
    CHECK(gridlane_error_kind(mine) == GRIDLANE_INTERRUPTED || gridlane_error_kind(mine) == GRIDLANE_USAGE);
    gridlane_error_free(mine);
    return unused;
}

static void *take_held(void *queue) {
    gridlane_completion done;
    gridlane_error *mine = NULL;
    CHECK(write(says_begun[1], "b", 1) == 1);
    CHECK(gridlane_queue_take((gridlane_queue *)queue, &done, 1, GRIDLANE_FOREVER, &mine) == -1);
    CHECK(gridlane_error_kind(mine) == GRIDLANE_INTERRUPTED || gridlane_error_kind(mine) == GRIDLANE_USAGE);
    gridlane_error_free(mine);
    return NULL;
}

static void held(const char *url, const char *silent) {
    char *buffer = (char *)room(1000), byte;
    gridlane_queue *queue = gridlane_queue_open(&error);
    gridlane_file *file = open_with(url, NULL, LONG_MS);
    gridlane_options options = GRIDLANE_OPTIONS_INIT;
    gridlane_call *call;
    gridlane_range ranges[2];
    pthread_t threads[2];
    pid_t child;
    int status = 0;
    size_t nth;

    /* Time-outs: of opening, and of each way to read. A range that is there is told all the same. */
    options.timeout_ms = 50;
    CHECK(gridlane_open(&silent, 1, &options, &error) == NULL);
    CHECK(strstr(gridlane_error_text(error), silent) != NULL);
    CHECK_ERROR(GRIDLANE_TIMEOUT);
    CHECK(gridlane_pread(file, buffer, 1000, 10000000, 50, &error) == -1);
    CHECK_ERROR(GRIDLANE_TIMEOUT);
    CHECK(gridlane_pread(file, buffer, 1000, 10000000, 0, &error) == -1);
    CHECK_ERROR(GRIDLANE_TIMEOUT);
    memset(ranges, 0, sizeof ranges);
    for (nth = 0; nth < 2; nth++) {
        ranges[nth].offset = nth == 0 ? 10 : 10000000;
        ranges[nth].length = 500;
        ranges[nth].buffer = buffer + 500 * nth;
    }
    CHECK(gridlane_readv(file, ranges, 2, 300, &error) == -1);
    CHECK_ERROR(GRIDLANE_TIMEOUT);
    CHECK(ranges[0].got == 500 && ranges[1].got == -1);
    begin(file, queue, buffer, 50);
    check_over(queue, &held_file, GRIDLANE_TIMEOUT);

    /* A call that was cancelled tells its end, and writes nothing: its buffer is gone. */
    call = begin(file, queue, buffer, GRIDLANE_FOREVER);
    gridlane_cancel(call);
    free(buffer);
    check_over(queue, &held_file, GRIDLANE_INTERRUPTED);
    gridlane_cancel(call);
    buffer = (char *)room(1000);

    /* The child of a fork is told. It may use what is of its memory alone, and ends as usual. */
    child = fork();
    if (child == 0) {
        CHECK(gridlane_pread(file, buffer, 1, 0, GRIDLANE_FOREVER, &error) == -1);
        CHECK(strstr(gridlane_error_text(error), "forked") != NULL);
        CHECK_ERROR(GRIDLANE_USAGE);
        CHECK(gridlane_open(&url, 1, NULL, &error) == NULL);
        CHECK_ERROR(GRIDLANE_USAGE);
        CHECK(gridlane_queue_open(NULL) == NULL);
        CHECK(gridlane_abi_version() == GRIDLANE_ABI_VERSION);
        gridlane_close(file);
        gridlane_queue_close(queue);
        _exit(7);
    }
    CHECK(child > 0);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    CHECK(gridlane_pread(file, buffer, 10, 0, LONG_MS, &error) == 10);

    /* A file is closed under a call in a queue, and under one of another thread that waits. */
    CHECK(pipe(says_begun) == 0);
    held_file = file;
    CHECK(pthread_create(&threads[0], NULL, read_held, NULL) == 0);
    CHECK(read(says_begun[0], &byte, 1) == 1);
    begin(file, queue, buffer, GRIDLANE_FOREVER);
    gridlane_close(file);
    check_over(queue, &held_file, GRIDLANE_INTERRUPTED);
    CHECK(pthread_join(threads[0], NULL) == 0);

    /* A queue is closed under a call, and under a thread that waits. */
    file = open_with(url, NULL, LONG_MS);
    begin(file, queue, buffer, GRIDLANE_FOREVER);
    CHECK(pthread_create(&threads[1], NULL, take_held, queue) == 0);
    CHECK(read(says_begun[0], &byte, 1) == 1);
    gridlane_queue_close(queue);
    free(buffer);
    CHECK(pthread_join(threads[1], NULL) == 0);
    CHECK(gridlane_submit(file, queue, NULL, 0, GRIDLANE_FOREVER, NULL, NULL, &error) == -1);
    CHECK_ERROR(GRIDLANE_USAGE);
    /* A call that is under way when the program ends. */
    queue = gridlane_queue_open(&error);
    begin(file, queue, room(1000), GRIDLANE_FOREVER);
}

static void wait_for_line(void) {
    char line[16];
    printf("half\n");
    CHECK(fflush(stdout) == 0);
    CHECK(fgets(line, sizeof line, stdin) != NULL);
}

static void dies(const char *path, const char *first, const char *second) {
    gridlane_file *file;
    int at;
    load(path);
    file = open_with(first, second, 0);
    check_readv(file, 100, 3000);
    wait_for_line();
    for (at = 0; at < 10; at++) {
        check_readv(file, 100, 3000);
        check_queue(file, 3, 30);
    }
    gridlane_close(file);
    free(right);
}

static void alone(const char *url) {
    char buffer[1000];
    int64_t got = 0;
    int at;
    gridlane_file *file = open_with(url, NULL, 2000);
    wait_for_line();
    for (at = 0; at < 100 && got >= 0; at++)
        got = gridlane_pread(file, buffer, sizeof buffer, 3000000 + 100000 * (uint64_t)at, LONG_MS, &error);
    CHECK(got == -1);
    CHECK(gridlane_error_retryable(error) == 1);
    CHECK(gridlane_error_kind(error) == GRIDLANE_NETWORK || gridlane_error_kind(error) == GRIDLANE_TIMEOUT);
    gridlane_error_free(error);
    gridlane_close(file);
}

int main(int count, char **words) {
    /* A call that never returns is a failure as well. */
    alarm(10 * LONG_MS / 1000);
    CHECK(gridlane_abi_version() == GRIDLANE_ABI_VERSION);
    CHECK(gridlane_version()[0] != '\0');
    if (count == 4 && strcmp(words[1], "all-over") == 0)
        all_over(words[2], words[3]);
    else if (count == 4 && strcmp(words[1], "errors") == 0)
        errors(words[2], words[3]);
    else if (count == 4 && strcmp(words[1], "held") == 0)
        held(words[2], words[3]);
    else if (count == 5 && strcmp(words[1], "dies") == 0)
        dies(words[2], words[3], words[4]);
    else if (count == 3 && strcmp(words[1], "alone") == 0)
        alone(words[2]);
    else
        return 2;
    printf("well\n");
    return 0;
}
