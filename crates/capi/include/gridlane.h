/*
 * gridlane.h: reading remote files, over http, https, dav, davs, root and roots, from one replica or several.
 *
 * In short:
 *
 *     gridlane_error *error = NULL;
 *     const char *urls[] = {"root://one.example//vo/run7.root", "https://two.example/vo/run7.root"};
 *     gridlane_file *file = gridlane_open(urls, 2, NULL, &error);
 *     if (file == NULL) {
 *         fprintf(stderr, "%s\n", gridlane_error_text(error));
 *         gridlane_error_free(error);
 *         return 1;
 *     }
 *     int64_t got = gridlane_pread(file, buffer, sizeof buffer, 4096, GRIDLANE_FOREVER, &error);
 *     gridlane_close(file);
 *
 * Several ranges that are read by one call (gridlane_readv) are brought together: that is what makes a long path fast. Those of
 * calls that are under way at the same time (gridlane_submit) are as well.
 *
 * Errors. A function that can fail takes `gridlane_error **error` last. If it is not NULL, *error becomes NULL, or an error that
 * the caller frees (gridlane_error_free). What *error was before is not looked at, and not freed.
 *
 * Handles. gridlane_file *, gridlane_queue * and gridlane_call * are names of things in the library and not addresses: they are
 * never used a second time, and one that was closed, or is of another kind, gives an error (GRIDLANE_USAGE) and no crash. NULL does
 * as well, where it is not said to mean something. The library keeps what a handle names until it is closed.
 *
 * Buffers are the caller's. Each byte is copied into them once, by the thread that calls gridlane_pread, gridlane_readv or
 * gridlane_queue_take, and inside of that call only: no other thread of the library ever writes there.
 *
 * Threads. Every function may be called by any thread at any time, for the same handles too. No function of the caller is ever
 * called. The library's own threads have all signals blocked. None of its functions ends early because of a signal, or may be called
 * by a handler of one; and no thread may be cancelled (pthread_cancel) inside of one.
 *
 * Texts are UTF-8, paths of this machine too.
 *
 * fork. In the child of a process that has used the library, every function that can fail fails at once with GRIDLANE_USAGE, and
 * closing does nothing: connections and threads stay with the parent. A child that calls exec, or whose parent has not used the
 * library yet, may do so; the functions for errors, texts and versions work everywhere. The library's descriptors are closed by exec.
 *
 * The library writes nothing to standard output or standard error, and is never unloaded (dlclose leaves it there). gridlane_open reads
 * the environment (credentials, proxies, authorities: as the command gridlane does), which no other thread may change meanwhile.
 */
#ifndef GRIDLANE_H
#define GRIDLANE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- Versions ------------------------------------------------------------------------------------------------------------------ */

/* The interface: the first number changes when a program has to be compiled again (and with it the name of the shared library,
 * libgridlane.so.1), the second one when something is added. */
#define GRIDLANE_ABI_MAJOR 1
#define GRIDLANE_ABI_MINOR 0
#define GRIDLANE_ABI_VERSION ((uint32_t)GRIDLANE_ABI_MAJOR << 16 | (uint32_t)GRIDLANE_ABI_MINOR)

/* The interface of the library that is loaded, as GRIDLANE_ABI_VERSION. */
uint32_t gridlane_abi_version(void);

/* The release of the library, for example "0.1.0". It is not freed. */
const char *gridlane_version(void);

/* --- Errors -------------------------------------------------------------------------------------------------------------------- */

/* What went wrong. The caller's, to be freed; unchanging, so that several threads may look at it. */
typedef struct gridlane_error gridlane_error;

/* Kinds of errors: the exit codes of the command. Others may be added. */
#define GRIDLANE_OTHER 1             /* nothing more precise fits; a defect of the library; a peer that broke its protocol */
#define GRIDLANE_USAGE 2             /* the call makes no sense as given */
#define GRIDLANE_NOT_FOUND 3         /* there is no such file */
#define GRIDLANE_DENIED 4            /* not allowed */
#define GRIDLANE_PRECONDITION 5      /* the file is not the one that it was */
#define GRIDLANE_NETWORK 6           /* no connection could be made, or all broke */
#define GRIDLANE_TIMEOUT 7           /* nothing came for too long */
#define GRIDLANE_CHECKSUM_MISMATCH 8 /* the bytes are not what their checksum says */
#define GRIDLANE_LOCAL_IO 9          /* this machine lacks something, or fails */
#define GRIDLANE_BUSY 11             /* the server asks to come back later */
#define GRIDLANE_UNSUPPORTED 12      /* the server cannot do this */
#define GRIDLANE_INTERRUPTED 130     /* the call was cancelled, or what it needs was closed */

/* The kind; 0 if error is NULL. */
int gridlane_error_kind(const gridlane_error *error);
/* The kind in a word, as in the command's JSON: "not_found"; "protocol" is told from "other" here. */
const char *gridlane_error_name(const gridlane_error *error);
/* What happened, in one sentence. */
const char *gridlane_error_message(const gridlane_error *error);
/* All of it in one line for people: where, what, whose fault, whether to retry, and advice. */
const char *gridlane_error_text(const gridlane_error *error);
/* The URL or server where it happened; NULL if it happened nowhere in particular. */
const char *gridlane_error_endpoint(const gridlane_error *error);
/* 1 if the same call may succeed later without anything being changed, else 0. */
int gridlane_error_retryable(const gridlane_error *error);
/* Frees an error, and the texts that were had from it; NULL is nothing. */
void gridlane_error_free(gridlane_error *error);

/* --- Files --------------------------------------------------------------------------------------------------------------------- */

/* A remote file that is open. */
typedef struct gridlane_file gridlane_file;

/* Flags of gridlane_options. */
#define GRIDLANE_NO_CREDENTIALS 1u /* none is looked for, none is sent */
#define GRIDLANE_INSECURE 2u       /* any certificate of a server is taken */
#define GRIDLANE_CHECK_PAGES 4u    /* over root:// in clear, small ranges are compared with checksums too: one read for each */
#define GRIDLANE_NO_PROOF 8u       /* the file's checksum is not asked for when all of its bytes are there */

/* The way in which a file is read. Everything that is 0 or NULL is the library's choice:
 *
 *     gridlane_options options = GRIDLANE_OPTIONS_INIT;
 *     options.memory_bytes = 64 << 20;
 *
 * An older library takes the structure of a newer header as long as what it does not know is 0, and the other way round. Nothing of
 * it is used after the call. */
typedef struct gridlane_options {
    size_t size;                   /* sizeof(gridlane_options) */
    const char *policy;            /* "adaptive" (as NULL), or forced: "direct", "vector", "prefetch", "lazy", "copy" */
    uint64_t memory_bytes;         /* of the file that are kept in memory [256 MB] */
    double budget;                 /* bytes that are moved for each that is wanted, at most; 1: nothing else [4] */
    uint32_t connections;          /* of all replicas together, up to 16 [8] */
    uint32_t flags;                /* GRIDLANE_... above, added up */
    int64_t patience_ms;           /* time without any byte after which waiting calls fail [60 000] */
    int64_t timeout_ms;            /* time for opening [as long as patience lasts] */
    const char *token;             /* a token itself; otherwise what is found where the field's programs look */
    const char *token_file;        /* a file with a token */
    const char *certificate;       /* a PEM file with a certificate or a proxy */
    const char *key;               /* its key [in the same file] */
    const char *const *authorities; /* PEM files with more authorities; NULL behind the last */
} gridlane_options;

#ifdef __cplusplus
#define GRIDLANE_OPTIONS_INIT {sizeof(gridlane_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#else
#define GRIDLANE_OPTIONS_INIT {sizeof(gridlane_options), NULL, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL}
#endif

/* Opens a file that all of these URLs (up to 64) name; returns when its size is known. A path is a file of this machine. Files that
 * are opened with the same credentials share connections to servers. Credentials are sent to these servers only.
 *
 * options may be NULL. Returns NULL on failure; the error is that of the last replica. */
gridlane_file *gridlane_open(const char *const *urls, size_t count, const gridlane_options *options, gridlane_error **error);

/* The size in bytes, which does not change while the file is open. Returns 0, or -1 on failure. */
int gridlane_size(const gridlane_file *file, uint64_t *size, gridlane_error **error);

/* Closes a file. Calls that read it, on other threads and in queues, end with GRIDLANE_INTERRUPTED. NULL, or a file that is
 * closed, is nothing. */
void gridlane_close(gridlane_file *file);

/* --- Reading, waiting for it --------------------------------------------------------------------------------------------------- */

/* For timeout_ms, in milliseconds: without one. Any negative number is the same. 0: what is in memory, or not at all. */
#define GRIDLANE_FOREVER ((int64_t)-1)

/* Reads up to length bytes from offset on. Returns their number, which is less than length at the end of the file only, or -1 on
 * failure; then the buffer has any bytes. */
int64_t gridlane_pread(gridlane_file *file, void *buffer, size_t length, uint64_t offset, int64_t timeout_ms, gridlane_error **error);

/* A range of the file, and the place for its bytes. */
typedef struct gridlane_range {
    uint64_t offset; /* of the first byte in the file */
    size_t length;   /* bytes that are wanted */
    void *buffer;    /* room for them; NULL if length is 0 */
    int64_t got;     /* bytes that came, written by gridlane_readv: fewer at the end of the file only; -1: the range is not complete */
} gridlane_range;

/* Reads ranges, up to 1 048 576 in any order; they may overlap in the file, and must not in memory. Returns 0, or -1 on failure; then
 * the ranges that were complete before have their bytes all the same (got >= 0), and all others, in every case, got -1. With more
 * ranges than that, nothing is written. Ranges that wait, of all calls of a file, are 2 097 152 at most. */
int gridlane_readv(gridlane_file *file, gridlane_range *ranges, size_t count, int64_t timeout_ms, gridlane_error **error);

/* --- Reading, range by range ---------------------------------------------------------------------------------------------------- */

/* Calls that are under way, and what they have to tell: a queue for each thread or event loop that reads.
 *
 *     gridlane_queue *queue = gridlane_queue_open(&error);
 *     gridlane_submit(file, queue, ranges, count, GRIDLANE_FOREVER, tag, NULL, &error);
 *     for (;;) {
 *         gridlane_completion done[64];
 *         int64_t found = gridlane_queue_take(queue, done, 64, GRIDLANE_FOREVER, &error);
 *         ...
 *     }
 */
typedef struct gridlane_queue gridlane_queue;

/* A call that was submitted. It needs no closing. */
typedef struct gridlane_call gridlane_call;

/* Something that a call tells. */
typedef struct gridlane_completion {
    void *tag;             /* as it was submitted */
    gridlane_call *call;   /* the call */
    size_t index;          /* of the range that is complete; SIZE_MAX: the call is over, and tells nothing more */
    size_t got;            /* bytes in the range's buffer: fewer than wanted at the end of the file only */
    gridlane_error *error; /* when the call is over: NULL, or why it failed: the caller's, to be freed */
    uint64_t reserved;     /* 0 */
} gridlane_completion;

/* Makes a queue. Returns NULL on failure. */
gridlane_queue *gridlane_queue_open(gridlane_error **error);

/* A descriptor (an eventfd) that is readable while something can be taken, for poll, epoll and event loops. It is neither read nor
 * closed by the caller, and ends with the queue. It may be readable once more than there is something. Closing the queue makes it
 * readable, and then closes it: it is taken out of an epoll before, since its number may be used again. Returns -1 on failure. */
int gridlane_queue_descriptor(const gridlane_queue *queue, gridlane_error **error);

/* Begins to read ranges, as gridlane_readv does, and waits for nothing. The array may go at once (got is not used); the buffers have
 * to stay until the end of the call was taken, or gridlane_cancel or gridlane_queue_close has returned for it.
 *
 * Each range that is complete is told once, in the order in which they come, and then, in any case, the end of the call, once. Bytes
 * that have come stay in the library's memory until they are taken. With timeout_ms the call fails when it is not complete by then.
 *
 * *call becomes the call if it is not NULL. Returns 0, or -1 on failure; then nothing will be told. */
int gridlane_submit(gridlane_file *file, gridlane_queue *queue, const gridlane_range *ranges, size_t count, int64_t timeout_ms, void *tag,
                    gridlane_call **call, gridlane_error **error);

/* Takes up to count completions, and fills the buffers of what they tell. Waits up to timeout_ms for the first one. Returns their
 * number, 0 if there is none by then, or -1 on failure: the queue was closed, also while this call waits.
 *
 * Of several threads that take from one queue, one may return with the end of a call before another one returns with its last ranges:
 * they count them before they free the buffers, or one thread takes. */
int64_t gridlane_queue_take(gridlane_queue *queue, gridlane_completion *completions, size_t count, int64_t timeout_ms,
                            gridlane_error **error);

/* Ends a call: when this returns, its buffers are the caller's again. Its end is told in the queue with GRIDLANE_INTERRUPTED. NULL, or
 * a call whose end is known, is nothing. */
void gridlane_cancel(gridlane_call *call);

/* Ends all calls of a queue, whose buffers are the caller's again when this returns, and closes it. NULL, or a queue that is closed, is
 * nothing. */
void gridlane_queue_close(gridlane_queue *queue);

/* --- Hints, and the record ------------------------------------------------------------------------------------------------------ */

#define GRIDLANE_SOON 1       /* these ranges will be read soon: they are fetched behind what calls wait for, up to 1024 */
#define GRIDLANE_KEEP 2       /* these ranges stay in memory once they are there, up to half of it */
#define GRIDLANE_EVERYTHING 3 /* all of the file will be read: the rest is fetched from now on */
#define GRIDLANE_RANDOM 4     /* reads will be at random places: no stream is looked for */

/* Tells of reads to come; waits for nothing, and nothing depends on it but time. Of ranges only offset and length are used; there are
 * none (NULL, 0) for GRIDLANE_EVERYTHING and GRIDLANE_RANDOM. Returns 0, or -1 on failure. */
int gridlane_hint(gridlane_file *file, int hint, const gridlane_range *ranges, size_t count, gridlane_error **error);

/* Fetches ranges ahead: gridlane_hint with GRIDLANE_SOON. */
int gridlane_prefetch(gridlane_file *file, const gridlane_range *ranges, size_t count, gridlane_error **error);

/* What was decided for a file and what it cost, up to now: an object of JSON, whose members are in docs/reference/c-abi.md. The caller
 * frees it by gridlane_text_free. Returns NULL on failure. */
char *gridlane_explain(const gridlane_file *file, gridlane_error **error);

/* Frees a text that the caller was given; NULL is nothing. */
void gridlane_text_free(char *text);

#ifdef __cplusplus
}
#endif

#endif
