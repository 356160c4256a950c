/* An HLML library for the tests: up to three cards (HLML_TEST_CARDS).
 * Card 0 knows everything, card 1 has no sensors, card 2 fell off the bus.
 * A file that HLML_TEST_HANG or HLML_TEST_CRASH names is removed, and the call hangs or crashes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9, AIP_LOST = 15 };
typedef long device_t; /* index + 1 */

static int lost(device_t device) { return device == 3 ? AIP_LOST : SUCCESS; }
static int sensor(device_t device, unsigned *out, unsigned value) {
    if (device == 2) return NOT_SUPPORTED;
    *out = value;
    return lost(device);
}

int hlml_init(void) {
    return getenv("HLML_TEST_NO_DRIVER") ? DRIVER_NOT_LOADED : SUCCESS;
}
static int told(const char *variable) {
    const char *file = getenv(variable);
    return file && unlink(file) == 0;
}
int hlml_device_get_count(unsigned *count) {
    if (told("HLML_TEST_HANG"))
        for (;;) pause();
    if (told("HLML_TEST_CRASH")) abort();
    if (getenv("HLML_TEST_CHATTER")) {
        puts("a library that prints");
        fflush(stdout);
    }
    const char *text = getenv("HLML_TEST_CARDS");
    *count = text ? (unsigned)atoi(text) : 3;
    return SUCCESS;
}
int hlml_device_get_handle_by_index(unsigned index, device_t *device) {
    *device = index + 1;
    return SUCCESS;
}
int hlml_device_get_name(device_t device, char *name, unsigned length) {
    strncpy(name, device == 1 ? "HL-225" : "HL-325L", length);
    return lost(device);
}
int hlml_device_get_module_id(device_t device, unsigned *id) {
    *id = (unsigned)device + 3;
    return lost(device);
}
int hlml_device_get_minor_number(device_t device, unsigned *minor) {
    *minor = (unsigned)device - 1;
    return lost(device);
}
int hlml_device_get_memory_info(device_t device, unsigned long long info[3]) {
    info[0] = 90ULL << 30;
    info[1] = 96ULL << 30;
    info[2] = 6ULL << 30;
    return lost(device);
}
int hlml_device_get_utilization_rates(device_t device, unsigned rates[2]) {
    rates[1] = 0;
    return sensor(device, rates, 37);
}
int hlml_device_get_power_usage(device_t device, unsigned *power) {
    return sensor(device, power, 87500);
}
int hlml_device_get_clock_info(device_t device, unsigned type, unsigned *clock) {
    return type == 0 ? sensor(device, clock, 1650) : NOT_SUPPORTED;
}
/* No hlml_device_get_temperature: an older library. */
